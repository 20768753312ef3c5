"""The model that `bench_parallel.py` measures: its shapes, its plan, and the same weights in every process."""

from __future__ import annotations

from typing import Any


# Hidden, intermediate, layers, heads, key/value heads, vocabulary; batch and length of the two forwards.
SHAPES: dict[str, dict[str, Any]] = {
    "llama-6b": {"sizes": (4096, 11008, 32, 32, 8, 32000), "long": (8, 2048), "short": (1, 2048), "tokens": 64},
    "tiny": {"sizes": (64, 112, 2, 8, 4, 160), "long": (4, 64), "short": (1, 64), "tokens": 16},
}
# What `modular-plan derive llama --head causal` prints; a test compares.
PLAN = """plan llama
rule model.embed_tokens embedding_rowwise
rule model.layers.*.self_attn.q_proj colwise
rule model.layers.*.self_attn.k_proj colwise
rule model.layers.*.self_attn.v_proj colwise
rule model.layers.*.self_attn.o_proj rowwise
rule model.layers.*.mlp.gate_proj colwise
rule model.layers.*.mlp.up_proj colwise
rule model.layers.*.mlp.down_proj rowwise
rule lm_head colwise_gather_output
"""


def build(shape: str) -> Any:
    """The model on the CPU: one block of a million random numbers repeated, because drawing billions takes minutes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    hidden, inner, layers, heads, groups, vocabulary = SHAPES[shape]["sizes"]
    config = LlamaConfig(
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        vocab_size=vocabulary,
        max_position_embeddings=4096,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    with torch.device("meta"):
        model = LlamaForCausalLM(config).to(dtype).eval()
    model.model.rotary_emb = type(model.model.rotary_emb)(config=config)
    block = (torch.randn(1 << 20, generator=torch.Generator().manual_seed(1)) * 0.02).to(dtype)
    for number, (name, parameter) in enumerate(list(model.named_parameters())):
        owner, _, leaf = name.rpartition(".")
        made = torch.ones(parameter.shape, dtype=dtype) if parameter.dim() == 1 else filled(parameter, block, number)
        setattr(model.get_submodule(owner), leaf, torch.nn.Parameter(made, requires_grad=False))
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
