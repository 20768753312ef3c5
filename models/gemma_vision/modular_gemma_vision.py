# Copyright 2026 The modular-converter authors.
#
# Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file except in compliance
# with the License. You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the License is distributed
# on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
"""GemmaVision: the two towers of CLIP, and a caption decoder made of Gemma, in one file."""

import torch
from torch import nn

from ..clip.configuration_clip import CLIPConfig, CLIPTextConfig, CLIPVisionConfig
from ..clip.modeling_clip import (
    CLIPModel,
    CLIPPreTrainedModel,
    CLIPTextModel,
    CLIPTextModelWithProjection,
    CLIPVisionModel,
    CLIPVisionModelWithProjection,
)
from ..gemma.configuration_gemma import GemmaConfig
from ..gemma.modeling_gemma import GemmaForCausalLM, GemmaModel, GemmaPreTrainedModel, repeat_kv


class GemmaVisionTextConfig(CLIPTextConfig):
    pass


class GemmaVisionVisionConfig(CLIPVisionConfig):
    pass


class GemmaVisionConfig(CLIPConfig):
    pass


class GemmaVisionCaptionConfig(GemmaConfig):
    """Sizes and switches of the caption decoder; `hidden_size` is the `projection_dim` of the towers."""


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention in plain operations, for towers and decoder: only the decoder has grouped key/value heads.
    The mask is added to the scores. Gives (batch, queries, heads, head_dim)."""
    groups = getattr(module, "num_key_value_groups", 1)
    key = repeat_kv(key, groups)
    value = repeat_kv(value, groups)
    scores = query @ key.transpose(-1, -2) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights


class GemmaVisionPreTrainedModel(CLIPPreTrainedModel):
    pass


class GemmaVisionTextModel(CLIPTextModel):
    pass


class GemmaVisionVisionModel(CLIPVisionModel):
    pass


class GemmaVisionModel(CLIPModel):
    def similarity(
        self, input_ids: torch.LongTensor, pixel_values: torch.Tensor, attention_mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Cosines (images, texts): the logits per image without the learned scale."""
        outputs = self(input_ids=input_ids, pixel_values=pixel_values, attention_mask=attention_mask)
        return outputs.image_embeds @ outputs.text_embeds.T


class GemmaVisionTextModelWithProjection(CLIPTextModelWithProjection):
    pass


class GemmaVisionVisionModelWithProjection(CLIPVisionModelWithProjection):
    pass


class GemmaVisionCaptionPreTrainedModel(GemmaPreTrainedModel):
    pass


class GemmaVisionCaptionModel(GemmaModel):
    pass


class GemmaVisionCaptionForCausalLM(GemmaForCausalLM):
    """Caption decoder: token ids (batch, sequence), or embeddings that begin with the image's, -> logits
    (batch, kept positions, vocabulary). `labels` (batch, sequence) are shifted inside; -100 is ignored."""

    def embed_caption(self, image_embeds: torch.Tensor, input_ids: torch.LongTensor) -> torch.Tensor:
        """An image (batch, hidden) in front of its caption (batch, sequence): (batch, 1 + sequence, hidden)."""
        return torch.cat([image_embeds.unsqueeze(1), self.get_input_embeddings()(input_ids)], dim=1)


__all__ = [
    "GemmaVisionConfig",
    "GemmaVisionCaptionConfig",
    "GemmaVisionCaptionForCausalLM",
    "GemmaVisionCaptionModel",
    "GemmaVisionCaptionPreTrainedModel",
    "GemmaVisionModel",
    "GemmaVisionPreTrainedModel",
    "GemmaVisionTextConfig",
    "GemmaVisionTextModel",
    "GemmaVisionTextModelWithProjection",
    "GemmaVisionVisionConfig",
    "GemmaVisionVisionModel",
    "GemmaVisionVisionModelWithProjection",
]
