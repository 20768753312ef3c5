# Copyright 2026 The modular-converter authors.
#
# Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file except in compliance
# with the License. You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the License is distributed
# on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
"""RoBERTa as its difference from BERT: positions that skip padding, and two other heads."""

import torch
import transformers.initialization as init
from torch import nn
from transformers.activations import ACT2FN
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.modeling_utils import PreTrainedModel

from ..bert.configuration_bert import BertConfig
from ..bert.modeling_bert import (
    BertEmbeddings,
    BertForMaskedLM,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    BertPreTrainedModel,
)


class RobertaConfig(BertConfig):
    """Sizes and switches of a RoBERTa encoder, by default those of the base model.
    Positions start after `pad_token_id`: a text may have `max_position_embeddings - pad_token_id - 1` tokens."""

    vocab_size: int = 50265
    pad_token_id: int | None = 1
    bos_token_id: int | None = 0
    eos_token_id: int | list[int] | None = 2


def position_ids_after_padding(input_ids: torch.Tensor, padding_idx: int) -> torch.Tensor:
    """Positions (batch, sequence) that count tokens from `padding_idx + 1`; padding is at `padding_idx`."""
    tokens = input_ids.ne(padding_idx).long()
    return tokens.cumsum(dim=1) * tokens + padding_idx


class RobertaEmbeddings(BertEmbeddings):
    """Sum of word, position and token type embeddings, normed: (batch, sequence) -> (batch, sequence, hidden).
    Positions count the tokens that are not padding, from `pad_token_id + 1`, unless given."""

    def __init__(self, config: RobertaConfig):
        super().__init__(config)
        self.position_embeddings = nn.Embedding(
            config.max_position_embeddings, config.hidden_size, padding_idx=config.pad_token_id
        )
        self.padding_idx = config.pad_token_id

    def default_position_ids(self, input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor) -> torch.Tensor:
        if input_ids is not None:
            return position_ids_after_padding(input_ids, self.padding_idx)
        start = self.padding_idx + 1
        return torch.arange(start, start + inputs_embeds.shape[1], device=inputs_embeds.device).unsqueeze(0)


class RobertaLMHead(nn.Module):
    """Word logits, (..., hidden) -> (..., vocabulary); weight and bias of `decoder` are tied."""

    def __init__(self, config: RobertaConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.decoder(self.layer_norm(ACT2FN["gelu"](self.dense(hidden_states))))


class RobertaClassificationHead(nn.Module):
    """Two layers on the first token: (batch, sequence, hidden) -> logits (batch, labels)."""

    def __init__(self, config: RobertaConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.out_proj = nn.Linear(config.hidden_size, config.num_labels)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        hidden_states = torch.tanh(self.dense(self.dropout(hidden_states[:, 0])))
        return self.out_proj(self.dropout(hidden_states))


class RobertaPreTrainedModel(BertPreTrainedModel):
    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        PreTrainedModel._init_weights(self, module)
        if isinstance(module, RobertaLMHead):
            init.zeros_(module.bias)


class RobertaModel(BertModel):
    pass


class RobertaForMaskedLM(BertForMaskedLM):
    _tied_weights_keys = {
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }

    def __init__(self, config: RobertaConfig):
        super().__init__(config)
        del self.cls
        self.lm_head = RobertaLMHead(config)

    def get_output_embeddings(self) -> nn.Linear:
        return self.lm_head.decoder

    def set_output_embeddings(self, value: nn.Linear):
        self.lm_head.decoder = value
        self.lm_head.bias = value.bias

    def word_logits(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.lm_head(hidden_states)


class RobertaForSequenceClassification(BertForSequenceClassification):
    def __init__(self, config: RobertaConfig):
        super().__init__(config)
        del self.dropout
        self.roberta = RobertaModel(config, add_pooling_layer=False)
        self.classifier = RobertaClassificationHead(config)

    def sequence_logits(self, outputs: BaseModelOutputWithPooling) -> torch.Tensor:
        return self.classifier(outputs.last_hidden_state)


class RobertaForTokenClassification(BertForTokenClassification):
    pass


class RobertaForQuestionAnswering(BertForQuestionAnswering):
    pass


__all__ = [
    "RobertaConfig",
    "RobertaForMaskedLM",
    "RobertaForQuestionAnswering",
    "RobertaForSequenceClassification",
    "RobertaForTokenClassification",
    "RobertaModel",
    "RobertaPreTrainedModel",
]
