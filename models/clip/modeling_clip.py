# Copyright 2026 The modular-converter authors.
#
# Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file except in compliance
# with the License. You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the License is distributed
# on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
"""CLIP: a text tower and a vision tower that meet in one space, where matching pairs are close."""

from dataclasses import dataclass

import torch
import transformers.initialization as init
from torch import nn
from transformers.activations import ACT2FN
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.utils.generic import (
    ModelOutput,
    TransformersKwargs,
    can_return_tuple,
    merge_with_config_defaults,
)
from transformers.utils.output_capturing import capture_outputs
from typing_extensions import Unpack

from .configuration_clip import CLIPConfig, CLIPTextConfig, CLIPVisionConfig


@dataclass
class CLIPTextModelOutput(ModelOutput):
    """Text embeddings (texts, projection), not normed, and what led to them."""

    text_embeds: torch.Tensor | None = None
    last_hidden_state: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class CLIPVisionModelOutput(ModelOutput):
    """Image embeddings (images, projection), not normed, and what led to them."""

    image_embeds: torch.Tensor | None = None
    last_hidden_state: torch.Tensor | None = None
    hidden_states: tuple[torch.Tensor, ...] | None = None
    attentions: tuple[torch.Tensor, ...] | None = None


@dataclass
class CLIPOutput(ModelOutput):
    """Scaled similarities (images, texts) and (texts, images), unit embeddings (..., projection), the towers' outputs."""

    loss: torch.Tensor | None = None
    logits_per_image: torch.Tensor | None = None
    logits_per_text: torch.Tensor | None = None
    text_embeds: torch.Tensor | None = None
    image_embeds: torch.Tensor | None = None
    text_model_output: BaseModelOutputWithPooling | None = None
    vision_model_output: BaseModelOutputWithPooling | None = None

    def to_tuple(self) -> tuple:
        return tuple(value.to_tuple() if isinstance(value, ModelOutput) else value for value in self.values())


def contrastive_loss(logits_per_text: torch.Tensor) -> torch.Tensor:
    """Each text should find its image among the batch, and each image its text: mean of both cross entropies."""
    target = torch.arange(len(logits_per_text), device=logits_per_text.device)
    text_loss = nn.functional.cross_entropy(logits_per_text, target)
    return (text_loss + nn.functional.cross_entropy(logits_per_text.T, target)) / 2.0


def end_of_text(input_ids: torch.Tensor, eos_token_id: int) -> torch.Tensor:
    """Index (batch,) of the first end-of-sequence token of each row.
    Configurations older than the right `eos_token_id` say 2; there it is the highest id of the row."""
    if eos_token_id == 2:
        return input_ids.argmax(dim=-1)
    return (input_ids == eos_token_id).int().argmax(dim=-1)


class CLIPTextEmbeddings(nn.Module):
    """Token plus position embeddings, (batch, sequence) -> (batch, sequence, hidden)."""

    def __init__(self, config: CLIPTextConfig):
        super().__init__()
        self.token_embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.position_embedding = nn.Embedding(config.max_position_embeddings, config.hidden_size)

    def forward(self, input_ids: torch.Tensor, position_ids: torch.Tensor | None = None) -> torch.Tensor:
        if position_ids is None:
            position_ids = torch.arange(input_ids.shape[1], device=input_ids.device).unsqueeze(0)
        return self.token_embedding(input_ids) + self.position_embedding(position_ids)


class CLIPVisionEmbeddings(nn.Module):
    """Patches after a class embedding, (images, channels, height, width) -> (images, 1 + patches, hidden)."""

    def __init__(self, config: CLIPVisionConfig):
        super().__init__()
        self.image_size = config.image_size
        self.class_embedding = nn.Parameter(torch.randn(config.hidden_size))
        self.patch_embedding = nn.Conv2d(
            config.num_channels, config.hidden_size, config.patch_size, stride=config.patch_size, bias=False
        )
        self.position_embedding = nn.Embedding((config.image_size // config.patch_size) ** 2 + 1, config.hidden_size)

    def forward(self, pixel_values: torch.Tensor) -> torch.Tensor:
        if pixel_values.shape[-2:] != (self.image_size, self.image_size):
            raise ValueError(f"images must be {self.image_size} pixels square, not {tuple(pixel_values.shape[-2:])}")
        patches = self.patch_embedding(pixel_values.to(self.patch_embedding.weight.dtype))
        patches = patches.flatten(2).transpose(1, 2)
        classes = self.class_embedding.expand(len(patches), 1, -1)
        return torch.cat([classes, patches], dim=1) + self.position_embedding.weight


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
    """Attention in plain operations; the mask is added to the scores. Gives (batch, queries, heads, head_dim)."""
    scores = query @ key.transpose(-1, -2) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights


class CLIPAttention(nn.Module):
    """Self-attention of either tower, (batch, sequence, hidden) -> the same, and the weights."""

    def __init__(self, config: CLIPTextConfig | CLIPVisionConfig):
        super().__init__()
        self.config = config
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.scaling = self.head_dim**-0.5
        self.attention_dropout = config.attention_dropout
        self.is_causal = False
        self.k_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.v_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.out_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        batch_size, length, _ = hidden_states.shape
        heads = (batch_size, length, -1, self.head_dim)
        query = self.q_proj(hidden_states).view(heads).transpose(1, 2)
        key = self.k_proj(hidden_states).view(heads).transpose(1, 2)
        value = self.v_proj(hidden_states).view(heads).transpose(1, 2)
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(self.config._attn_implementation, eager_attention_forward)
        dropout = self.attention_dropout if self.training else 0.0
        output, weights = attend(
            self, query, key, value, attention_mask, dropout=dropout, scaling=self.scaling, **kwargs
        )
        return self.out_proj(output.reshape(batch_size, length, -1)), weights


class CLIPMLP(nn.Module):
    """(..., hidden) -> (..., hidden) by way of (..., intermediate)."""

    def __init__(self, config: CLIPTextConfig | CLIPVisionConfig):
        super().__init__()
        self.activation_fn = ACT2FN[config.hidden_act]
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.activation_fn(self.fc1(hidden_states)))


class CLIPEncoderLayer(GradientCheckpointingLayer):
    """Attention and MLP, each after a norm and added to its input; (batch, sequence, hidden) -> the same."""

    def __init__(self, config: CLIPTextConfig | CLIPVisionConfig):
        super().__init__()
        self.self_attn = CLIPAttention(config)
        self.layer_norm1 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.mlp = CLIPMLP(config)
        self.layer_norm2 = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs
    ) -> torch.Tensor:
        attention_output, _ = self.self_attn(self.layer_norm1(hidden_states), attention_mask, **kwargs)
        hidden_states = hidden_states + attention_output
        return hidden_states + self.mlp(self.layer_norm2(hidden_states))


class CLIPEncoder(nn.Module):
    """The stack of layers of either tower, (batch, sequence, hidden) -> the same."""

    def __init__(self, config: CLIPTextConfig | CLIPVisionConfig):
        super().__init__()
        self.layers = nn.ModuleList([CLIPEncoderLayer(config) for _ in range(config.num_hidden_layers)])

    def forward(
        self, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs
    ) -> torch.Tensor:
        for layer in self.layers:
            hidden_states = layer(hidden_states, attention_mask, **kwargs)
        return hidden_states


class CLIPPreTrainedModel(PreTrainedModel):
    """What all models of this file share: configuration class, initial weights, supported kernels, recordable outputs."""

    config: CLIPConfig
    base_model_prefix = "clip"
    input_modalities = ("image", "text")
    supports_gradient_checkpointing = True
    _no_split_modules = ["CLIPTextEmbeddings", "CLIPVisionEmbeddings", "CLIPEncoderLayer"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_record_outputs = {"hidden_states": CLIPEncoderLayer, "attentions": CLIPAttention}

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        super()._init_weights(module)
        factor = self.config.initializer_factor
        if isinstance(module, nn.Linear):
            init.normal_(module.weight, std=factor * module.in_features**-0.5)
        elif isinstance(module, (nn.Embedding, nn.Conv2d)):
            init.normal_(module.weight, std=factor * 0.02)
        elif isinstance(module, CLIPVisionEmbeddings):
            init.normal_(module.class_embedding, std=factor * len(module.class_embedding) ** -0.5)
        elif hasattr(module, "logit_scale"):
            init.constant_(module.logit_scale, module.config.logit_scale_init_value)


class CLIPTextModel(CLIPPreTrainedModel):
    """Text tower: token ids (batch, sequence) -> hidden states (batch, sequence, hidden), pooled (batch, hidden)."""

    config: CLIPTextConfig
    input_modalities = ("text",)
    _input_embed_layer = "token_embedding"

    def __init__(self, config: CLIPTextConfig):
        super().__init__(config)
        self.embeddings = CLIPTextEmbeddings(config)
        self.encoder = CLIPEncoder(config)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs(tie_last_hidden_states=False)
    def forward(
        self,
        input_ids: torch.LongTensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        hidden_states = self.embeddings(input_ids, position_ids)
        causal_mask = create_causal_mask(
            config=self.config, inputs_embeds=hidden_states, attention_mask=attention_mask, cache=None
        )
        kwargs["is_causal"] = True
        hidden_states = self.final_layer_norm(self.encoder(hidden_states, causal_mask, **kwargs))
        rows = torch.arange(len(hidden_states), device=hidden_states.device)
        pooled = hidden_states[rows, end_of_text(input_ids, self.config.eos_token_id)]
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=pooled)


class CLIPVisionModel(CLIPPreTrainedModel):
    """Vision tower: pixels (images, channels, height, width) -> hidden states (images, 1 + patches, hidden), pooled
    (images, hidden). Only the pooled ones go through the last norm."""

    config: CLIPVisionConfig
    main_input_name = "pixel_values"
    input_modalities = ("image",)
    _input_embed_layer = "patch_embedding"

    def __init__(self, config: CLIPVisionConfig):
        super().__init__(config)
        self.embeddings = CLIPVisionEmbeddings(config)
        # The spelling is that of the checkpoints.
        self.pre_layrnorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.encoder = CLIPEncoder(config)
        self.post_layernorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs(tie_last_hidden_states=False)
    def forward(self, pixel_values: torch.Tensor, **kwargs: Unpack[TransformersKwargs]) -> BaseModelOutputWithPooling:
        hidden_states = self.encoder(self.pre_layrnorm(self.embeddings(pixel_values)), **kwargs)
        return BaseModelOutputWithPooling(
            last_hidden_state=hidden_states, pooler_output=self.post_layernorm(hidden_states[:, 0])
        )


class CLIPModel(CLIPPreTrainedModel):
    """Both towers: `logits_per_image` (images, texts) are cosines of the embeddings times a learned scale.
    With `return_loss`, the i-th image belongs to the i-th text."""

    def __init__(self, config: CLIPConfig):
        super().__init__(config)
        self.text_model = CLIPTextModel(config.text_config)
        self.vision_model = CLIPVisionModel(config.vision_config)
        self.visual_projection = nn.Linear(config.vision_config.hidden_size, config.projection_dim, bias=False)
        self.text_projection = nn.Linear(config.text_config.hidden_size, config.projection_dim, bias=False)
        self.logit_scale = nn.Parameter(torch.tensor(float(config.logit_scale_init_value)))
        self.post_init()

    @can_return_tuple
    def get_text_features(
        self,
        input_ids: torch.LongTensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        """The text tower's output with `pooler_output` projected, (texts, projection)."""
        outputs = self.text_model(input_ids, attention_mask, position_ids, **kwargs)
        outputs.pooler_output = self.text_projection(outputs.pooler_output)
        return outputs

    @can_return_tuple
    def get_image_features(
        self, pixel_values: torch.Tensor, **kwargs: Unpack[TransformersKwargs]
    ) -> BaseModelOutputWithPooling:
        """The vision tower's output with `pooler_output` projected, (images, projection)."""
        outputs = self.vision_model(pixel_values, **kwargs)
        outputs.pooler_output = self.visual_projection(outputs.pooler_output)
        return outputs

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor,
        pixel_values: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        return_loss: bool = False,
        **kwargs: Unpack[TransformersKwargs],
    ) -> CLIPOutput:
        text_outputs = self.get_text_features(input_ids, attention_mask, position_ids, **kwargs)
        vision_outputs = self.get_image_features(pixel_values, **kwargs)
        text_embeds = text_outputs.pooler_output / text_outputs.pooler_output.norm(dim=-1, keepdim=True)
        image_embeds = vision_outputs.pooler_output / vision_outputs.pooler_output.norm(dim=-1, keepdim=True)
        logits_per_text = text_embeds @ image_embeds.T * self.logit_scale.exp()
        return CLIPOutput(
            loss=contrastive_loss(logits_per_text) if return_loss else None,
            logits_per_image=logits_per_text.T,
            logits_per_text=logits_per_text,
            text_embeds=text_embeds,
            image_embeds=image_embeds,
            text_model_output=text_outputs,
            vision_model_output=vision_outputs,
        )


class CLIPTextModelWithProjection(CLIPPreTrainedModel):
    """Text tower and projection: token ids (batch, sequence) -> text embeddings (batch, projection), not normed."""

    config: CLIPTextConfig
    base_model_prefix = "text_model"
    input_modalities = ("text",)

    def __init__(self, config: CLIPTextConfig):
        super().__init__(config)
        self.text_model = CLIPTextModel(config)
        self.text_projection = nn.Linear(config.hidden_size, config.projection_dim, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: torch.LongTensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.LongTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> CLIPTextModelOutput:
        outputs = self.text_model(input_ids, attention_mask, position_ids, **kwargs)
        return CLIPTextModelOutput(
            text_embeds=self.text_projection(outputs.pooler_output),
            last_hidden_state=outputs.last_hidden_state,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


class CLIPVisionModelWithProjection(CLIPPreTrainedModel):
    """Vision tower and projection: pixels -> image embeddings (images, projection), not normed."""

    config: CLIPVisionConfig
    base_model_prefix = "vision_model"
    main_input_name = "pixel_values"
    input_modalities = ("image",)

    def __init__(self, config: CLIPVisionConfig):
        super().__init__(config)
        self.vision_model = CLIPVisionModel(config)
        self.visual_projection = nn.Linear(config.hidden_size, config.projection_dim, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(self, pixel_values: torch.Tensor, **kwargs: Unpack[TransformersKwargs]) -> CLIPVisionModelOutput:
        outputs = self.vision_model(pixel_values, **kwargs)
        return CLIPVisionModelOutput(
            image_embeds=self.visual_projection(outputs.pooler_output),
            last_hidden_state=outputs.last_hidden_state,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )


__all__ = [
    "CLIPModel",
    "CLIPPreTrainedModel",
    "CLIPTextModel",
    "CLIPTextModelWithProjection",
    "CLIPVisionModel",
    "CLIPVisionModelWithProjection",
]
