# Copyright 2026 The modular-converter authors.
#
# Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file except in compliance
# with the License. You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the License is distributed
# on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
"""Gemma as its difference from LLaMA: another norm, scaled embeddings, no bias in the MLP, no prefix space."""

from collections.abc import Sequence

import torch
import transformers.initialization as init
from torch import nn
from transformers.modeling_utils import PreTrainedModel
from transformers.tokenization_python import PythonBackend

from ..llama.configuration_llama import LlamaConfig
from ..llama.modeling_llama import (
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LlamaMLP,
    LlamaModel,
    LlamaPreTrainedModel,
    LlamaRMSNorm,
)
from ..llama.tokenization_llama import LlamaTokenizer, join_pieces, read_pieces


class GemmaConfig(LlamaConfig):
    """Sizes and switches of a Gemma decoder, by default those of the 7B model.
    Word embeddings are multiplied by `embedding_scale`, the square root of `hidden_size` when left out."""

    vocab_size: int = 256000
    hidden_size: int = 3072
    intermediate_size: int = 24576
    num_hidden_layers: int = 28
    num_attention_heads: int = 16
    head_dim: int | None = 256
    hidden_act: str = "gelu_pytorch_tanh"
    max_position_embeddings: int = 8192
    pad_token_id: int | None = 0
    bos_token_id: int | None = 2
    eos_token_id: int | list[int] | None = 1
    tie_word_embeddings: bool = True
    mlp_bias = AttributeError()
    embedding_scale: float | int | None = None

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        if self.embedding_scale is None:
            self.embedding_scale = self.hidden_size**0.5


def scale_embeddings(embeddings: torch.Tensor, scale: float) -> torch.Tensor:
    """Multiply by `scale` rounded to the dtype of the embeddings, as the weights were trained."""
    return embeddings * torch.tensor(scale, dtype=embeddings.dtype, device=embeddings.device)


class GemmaScaledEmbedding(nn.Embedding):
    """Word embeddings times a constant, (batch, sequence) -> (batch, sequence, hidden).
    The output head, tied to the weight, sees it unscaled."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None, scale: float):
        super().__init__(num_embeddings, embedding_dim, padding_idx)
        self.scale = scale

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return scale_embeddings(super().forward(input_ids), self.scale)


class GemmaRMSNorm(LlamaRMSNorm):
    """Root mean square norm of the last axis, (..., hidden) -> (..., hidden), scaled by 1 + weight.
    All of it in float32: the cast back comes last."""

    def __init__(self, hidden_size: int, eps: float = 1e-6):
        super().__init__(hidden_size, eps)
        self.weight = nn.Parameter(torch.zeros(hidden_size))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return (self.normalize(hidden_states) * (1.0 + self.weight.float())).to(hidden_states.dtype)


class GemmaMLP(LlamaMLP):
    def __init__(self, config: GemmaConfig):
        super().__init__(config)
        del self.use_bias
        self.gate_proj = nn.Linear(self.hidden_size, self.intermediate_size, bias=False)
        self.up_proj = nn.Linear(self.hidden_size, self.intermediate_size, bias=False)
        self.down_proj = nn.Linear(self.intermediate_size, self.hidden_size, bias=False)


class GemmaPreTrainedModel(LlamaPreTrainedModel):
    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        PreTrainedModel._init_weights(self, module)
        if isinstance(module, GemmaRMSNorm):
            init.zeros_(module.weight)


class GemmaModel(LlamaModel):
    def __init__(self, config: GemmaConfig):
        super().__init__(config)
        self.embed_tokens = GemmaScaledEmbedding(
            config.vocab_size, config.hidden_size, config.pad_token_id, scale=config.embedding_scale
        )


class GemmaForCausalLM(LlamaForCausalLM):
    pass


class GemmaForSequenceClassification(LlamaForSequenceClassification):
    pass


class GemmaTokenizer(LlamaTokenizer):
    """Text <-> pieces <-> ids, with `▁` for a space and a beginning-of-sequence token in front.
    Unlike its parent it adds no space to a text, and knows a padding token."""

    def __init__(
        self,
        vocab: dict[str, int] | Sequence[str] | None = None,
        vocab_file: str | None = None,
        unk_token: str = "<unk>",
        bos_token: str = "<bos>",
        eos_token: str = "<eos>",
        pad_token: str = "<pad>",
        **kwargs,
    ):
        special_tokens = [str(pad_token), str(eos_token), str(bos_token), str(unk_token)]
        self.encoder = read_pieces(vocab, vocab_file, special_tokens)
        self.decoder = {index: piece for piece, index in self.encoder.items()}
        PythonBackend.__init__(
            self,
            unk_token=unk_token,
            bos_token=bos_token,
            eos_token=eos_token,
            pad_token=pad_token,
            special_tokens_pattern="bos",
            **kwargs,
        )

    def prepare_for_tokenization(self, text: str, is_split_into_words: bool = False, **kwargs) -> tuple[str, dict]:
        raise AttributeError("a text is taken as it is")

    def strip_prefix_space(self, text: str) -> str:
        raise AttributeError("there is no prefix space to strip")

    def convert_tokens_to_string(self, tokens: list[str]) -> str:
        return join_pieces(tokens)

    def instruction(self, message: str, system: str | None = None) -> str:
        raise AttributeError("another chat format")


__all__ = [
    "GemmaConfig",
    "GemmaForCausalLM",
    "GemmaForSequenceClassification",
    "GemmaModel",
    "GemmaPreTrainedModel",
    "GemmaTokenizer",
]
