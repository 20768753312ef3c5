# Copyright 2026 The modular-converter authors.
#
# Licensed under the Apache License, Version 2.0 (the "License"); you may not use this file except in compliance
# with the License. You may obtain a copy of the License at http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software distributed under the License is distributed
# on an "AS IS" BASIS, WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
"""CLIP: configurations of the text tower, the vision tower and both."""

from huggingface_hub.dataclasses import strict
from transformers.configuration_utils import PreTrainedConfig


@strict
class CLIPTextConfig(PreTrainedConfig):
    """Sizes of the text tower, by default those of ViT-B/32.
    The hidden state at the first `eos_token_id` stands for the text."""

    model_type = "clip_text_model"
    base_config_key = "text_config"
    base_model_tp_plan = {
        "embeddings.token_embedding": "embedding_rowwise",
        "encoder.layers.*.self_attn.k_proj": "colwise",
        "encoder.layers.*.self_attn.v_proj": "colwise",
        "encoder.layers.*.self_attn.q_proj": "colwise",
        "encoder.layers.*.self_attn.out_proj": "rowwise",
        "encoder.layers.*.mlp.fc1": "colwise",
        "encoder.layers.*.mlp.fc2": "rowwise",
    }

    vocab_size: int = 49408
    hidden_size: int = 512
    intermediate_size: int = 2048
    projection_dim: int = 512
    num_hidden_layers: int = 12
    num_attention_heads: int = 8
    max_position_embeddings: int = 77
    hidden_act: str = "quick_gelu"
    layer_norm_eps: float = 1e-5
    attention_dropout: float | int = 0.0
    initializer_factor: float = 1.0
    pad_token_id: int | None = 1
    bos_token_id: int | None = 49406
    eos_token_id: int | None = 49407


@strict
class CLIPVisionConfig(PreTrainedConfig):
    """Sizes of the vision tower, by default those of ViT-B/32.
    An image is `image_size` pixels square, cut into patches of `patch_size` square."""

    model_type = "clip_vision_model"
    base_config_key = "vision_config"
    base_model_tp_plan = {
        "encoder.layers.*.self_attn.k_proj": "colwise",
        "encoder.layers.*.self_attn.v_proj": "colwise",
        "encoder.layers.*.self_attn.q_proj": "colwise",
        "encoder.layers.*.self_attn.out_proj": "rowwise",
        "encoder.layers.*.mlp.fc1": "colwise",
        "encoder.layers.*.mlp.fc2": "rowwise",
    }

    hidden_size: int = 768
    intermediate_size: int = 3072
    projection_dim: int = 512
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    num_channels: int = 3
    image_size: int = 224
    patch_size: int = 32
    hidden_act: str = "quick_gelu"
    layer_norm_eps: float = 1e-5
    attention_dropout: float | int = 0.0
    initializer_factor: float = 1.0


@strict
class CLIPConfig(PreTrainedConfig):
    """Both towers, and the space of `projection_dim` dimensions where they meet.
    `logit_scale_init_value` is the logarithm of the initial inverse temperature."""

    model_type = "clip"
    sub_configs_defaults = {"text_config": CLIPTextConfig, "vision_config": CLIPVisionConfig}

    text_config: dict | CLIPTextConfig | None = None
    vision_config: dict | CLIPVisionConfig | None = None
    projection_dim: int = 512
    logit_scale_init_value: float | int = 2.6592
    initializer_factor: float = 1.0


__all__ = ["CLIPConfig", "CLIPTextConfig", "CLIPVisionConfig"]
