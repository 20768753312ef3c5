# Copyright 2026 The modular-converter authors.
#
# Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file except in compliance
# with the License. You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the License is distributed
# on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
import torch
from torch import nn
from transformers.cache_utils import Cache, DynamicCache
from transformers.masking_utils import create_causal_mask, create_sliding_window_causal_mask
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils.generic import TransformersKwargs
from typing_extensions import Unpack

from ..gemma.modeling_gemma import GemmaMLP
from ..llama.configuration_llama import LlamaConfig
from ..llama.modeling_llama import (
    LlamaAttention,
    LlamaForCausalLM,
    LlamaForSequenceClassification,
    LlamaModel,
    apply_rotary_pos_emb,
    eager_attention_forward,
)


class MistralConfig(LlamaConfig):
    """Sizes and switches of a Mistral decoder, by default those of the 7B model.
    `head_dim` follows from the other sizes when left out, and `sliding_window=None` lets a token see all before it."""

    model_type = "mistral"
    intermediate_size: int = 14336
    num_key_value_heads: int | None = 8
    max_position_embeddings: int = 4096 * 32
    sliding_window: int | None = 4096
    attention_bias = AttributeError()
    mlp_bias = AttributeError()


class MistralAttention(LlamaAttention):
    """Causal self-attention with rotary positions, (batch, sequence, hidden) -> the same, and the weights.
    Several query heads may share one key/value head, and a query sees the last `sliding_window` positions."""

    def __init__(self, config: MistralConfig, layer_idx: int):
        super().__init__(config, layer_idx)

        query_size = config.num_attention_heads * self.head_dim
        key_value_size = config.num_key_value_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, query_size, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, key_value_size, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, key_value_size, bias=False)
        self.o_proj = nn.Linear(query_size, config.hidden_size, bias=False)

    def forward(
        self,
        hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_embeddings: tuple[torch.Tensor, torch.Tensor] | None = None,
        cache: Cache | None = None,
        **kwargs,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        batch_size, length, _ = hidden_states.shape
        heads = (batch_size, length, -1, self.head_dim)
        query = apply_rotary_pos_emb(self.q_proj(hidden_states).view(heads).transpose(1, 2), *position_embeddings)
        key = apply_rotary_pos_emb(self.k_proj(hidden_states).view(heads).transpose(1, 2), *position_embeddings)
        value = self.v_proj(hidden_states).view(heads).transpose(1, 2)
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)

        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        dropout = self.attention_dropout if self.training else 0.0
        output, weights = attend(
            self,
            query,
            key,
            value,
            attention_mask,
            dropout=dropout,
            scaling=self.scaling,
            sliding_window=self.config.sliding_window,
            **kwargs,
        )
        return self.o_proj(output.reshape(batch_size, length, -1)), weights


class MistralMLP(GemmaMLP):
    pass


class MistralModel(LlamaModel):
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        cache: Cache | None = None,
        inputs_embeds: torch.Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPast:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("pass either input_ids or inputs_embeds")
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        if use_cache and cache is None:
            cache = DynamicCache(config=self.config)
        if position_ids is None:
            seen = cache.get_seq_length() if cache is not None else 0
            position_ids = torch.arange(seen, seen + inputs_embeds.shape[1], device=inputs_embeds.device).unsqueeze(0)

        create_mask = create_causal_mask if self.config.sliding_window is None else create_sliding_window_causal_mask
        causal_mask = create_mask(
            config=self.config,
            inputs_embeds=inputs_embeds,
            attention_mask=attention_mask,
            cache=cache,
            position_ids=position_ids,
        )
        position_embeddings = self.rotary_emb(inputs_embeds, position_ids)
        hidden_states = inputs_embeds
        for layer in self.layers:
            hidden_states = layer(
                hidden_states,
                attention_mask=causal_mask,
                position_embeddings=position_embeddings,
                cache=cache,
                position_ids=position_ids,
                **kwargs,
            )
        return BaseModelOutputWithPast(last_hidden_state=self.norm(hidden_states), cache=cache)


class MistralForCausalLM(LlamaForCausalLM):
    pass


class MistralForSequenceClassification(LlamaForSequenceClassification):
    pass


__all__ = [
    "MistralConfig",
    "MistralForCausalLM",
    "MistralForSequenceClassification",
    "MistralModel",
    "MistralPreTrainedModel",  # noqa: F822
]
