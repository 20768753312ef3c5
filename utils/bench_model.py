"""The models that `bench_parallel.py` measures: configurations, inputs, and the same weights in every process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Shape:
    """A model at a size, and its inputs.

    Attributes:
        kind: its class in transformers.
        sizes: fields of its configuration.
        long, short: sequences and tokens (or images and 0) of the two forwards.
        tokens: generated tokens; 0 for a model that generates none.
        encoded: the input that its encoder reads, and the lengths behind the batch; "" if its only inputs are tokens.
    """

    kind: str
    sizes: Mapping[str, int]
    long: tuple[int, int] = (8, 2048)
    short: tuple[int, int] = (1, 2048)
    tokens: int = 16
    encoded: str = ""
    lengths: tuple[int, ...] = field(default=())


SHAPES: dict[str, Shape] = {
    "llama-6b": Shape(
        "LlamaForCausalLM",
        {
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "vocab_size": 32000,
        },
    ),
    "qwen3_moe-8b": Shape(
        "Qwen3MoeForCausalLM",
        {
            "hidden_size": 2048,
            "moe_intermediate_size": 768,
            "num_hidden_layers": 24,
            "num_attention_heads": 32,
            "num_key_value_heads": 4,
            "head_dim": 128,
            "num_experts": 64,
            "num_experts_per_tok": 8,
            "vocab_size": 32000,
        },
    ),
    "t5-3b": Shape(
        "T5ForConditionalGeneration",
        {"d_model": 1024, "d_kv": 128, "num_heads": 32, "d_ff": 16384, "num_layers": 28, "vocab_size": 32128},
        (8, 1024),
        (1, 1024),
        encoded="input_ids",
    ),
    "gpt2-1.6b": Shape(
        "GPT2LMHeadModel",
        {"n_embd": 1600, "n_layer": 48, "n_head": 25, "n_positions": 2048, "vocab_size": 50304},
    ),
    "bert-1.3b": Shape(
        "BertModel",
        {
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 24,
            "num_attention_heads": 32,
            "vocab_size": 30528,
        },
        (16, 512),
        (1, 512),
        tokens=0,
    ),
    "gemma3-3b": Shape(
        "Gemma3ForCausalLM",
        {
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 34,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "sliding_window": 1024,
            "vocab_size": 32768,
        },
    ),
    "vit-1.8b": Shape(
        "ViTModel",
        {
            "hidden_size": 1664,
            "intermediate_size": 8192,
            "num_hidden_layers": 48,
            "num_attention_heads": 16,
            "image_size": 224,
            "patch_size": 14,
        },
        (64, 0),
        (1, 0),
        tokens=0,
        encoded="pixel_values",
        lengths=(3, 224, 224),
    ),
    "whisper-1.5b": Shape(
        "WhisperForConditionalGeneration",
        {
            "d_model": 1280,
            "encoder_layers": 32,
            "decoder_layers": 32,
            "encoder_attention_heads": 20,
            "decoder_attention_heads": 20,
            "encoder_ffn_dim": 5120,
            "decoder_ffn_dim": 5120,
            "num_mel_bins": 128,
            "vocab_size": 51866,
        },
        (8, 448),
        (1, 448),
        encoded="input_features",
        lengths=(128, 3000),
    ),
    "tiny": Shape(
        "LlamaForCausalLM",
        {
            "hidden_size": 64,
            "intermediate_size": 112,
            "num_hidden_layers": 2,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "vocab_size": 160,
        },
        (4, 64),
        (1, 64),
        16,
    ),
    "tiny-t5": Shape(
        "T5ForConditionalGeneration",
        {"d_model": 64, "d_kv": 8, "num_heads": 8, "d_ff": 128, "num_layers": 2, "vocab_size": 160},
        (4, 64),
        (1, 64),
        16,
        encoded="input_ids",
    ),
}
PROMPT = 32
_FIRST_TOKEN = 1


def build(shape: str) -> Any:
    """The model on the CPU: one block of a million random numbers repeated, because drawing billions takes minutes."""
    import torch
    import transformers
    from accelerate import init_empty_weights

    kind = getattr(transformers, SHAPES[shape].kind)
    config = kind.config_class(**SHAPES[shape].sizes, bos_token_id=1, eos_token_id=None, pad_token_id=0)
    if config.is_encoder_decoder:
        config.decoder_start_token_id = _FIRST_TOKEN
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    with init_empty_weights(include_buffers=False):
        model = kind(config).eval()
    block = (torch.randn(1 << 20, generator=torch.Generator().manual_seed(1)) * 0.02).to(dtype)
    for number, (name, parameter) in enumerate(list(model.named_parameters())):
        owner, _, leaf = name.rpartition(".")
        if parameter.dim() == 1:
            made = torch.full(parameter.shape, 0.0 if leaf == "bias" else 1.0, dtype=dtype)
        else:
            made = filled(parameter, block, number)
        setattr(model.get_submodule(owner), leaf, torch.nn.Parameter(made, requires_grad=False))
    model.tie_weights()
    if SHAPES[shape].tokens:
        model.generation_config.eos_token_id = None
    model.config.dtype = dtype
    return model


def filled(like: Any, block: Any, number: int) -> Any:
    """A tensor of the shape of ``like`` with the block again and again, from another place for each number."""
    import torch

    made = torch.empty(like.shape, dtype=block.dtype)
    flat, block = made.view(-1), block.roll(number * 977)
    whole = flat.numel() // block.numel()
    flat[: whole * block.numel()].view(whole, block.numel()).copy_(block.expand(whole, -1))
    rest = flat[whole * block.numel() :]
    rest.copy_(block[: rest.numel()])
    return made


def forward_inputs(shape: str, which: str, place: Any) -> dict[str, Any]:
    """Random inputs of the ``long`` or the ``short`` forward, on a device."""
    known = SHAPES[shape]
    batch, length = known.long if which == "long" else known.short
    found = {} if not known.encoded else _encoded(known, batch, length, place)
    if known.lengths and not length:  # images alone
        return found
    found["decoder_input_ids" if known.encoded else "input_ids"] = _tokens(known, batch, length, place)
    if known.kind != "BertModel":
        found["use_cache"] = False
    return found


def prompt(shape: str, place: Any, rows: int = 1) -> dict[str, Any]:
    """The inputs of ``generate``: so many sequences of ``PROMPT`` tokens, or what the encoder reads."""
    import torch

    known = SHAPES[shape]
    found = (
        _encoded(known, rows, PROMPT, place) if known.encoded else {"input_ids": _tokens(known, rows, PROMPT, place)}
    )
    if "input_ids" in found:
        found["attention_mask"] = torch.ones_like(found["input_ids"])
    return found


def prompts_of(shape: str, number: int) -> list[list[int]]:
    """So many prompts of ``PROMPT`` tokens."""
    found: list[list[int]] = _tokens(SHAPES[shape], number, PROMPT, "cpu").tolist()
    return found


def _encoded(known: Shape, batch: int, length: int, place: Any) -> dict[str, Any]:
    import torch

    if not known.lengths:
        return {known.encoded: _tokens(known, batch, length, place)}
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    drawn = torch.randn(batch, *known.lengths, generator=torch.Generator().manual_seed(3))
    return {known.encoded: drawn.to(place, dtype)}


def _tokens(known: Shape, batch: int, length: int, place: Any) -> Any:
    import torch

    draw = torch.Generator().manual_seed(2)
    return torch.randint(3, known.sizes["vocab_size"], (batch, length), generator=draw).to(place)
