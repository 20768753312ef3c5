"""Configuration values for models whose small instance needs help. Data only: model type -> overrides.

Dotted names reach sub-configurations. Each entry states a relation between sizes that the model's code asserts.
"""

from __future__ import annotations

from typing import Any


# A default backbone from a library that may be missing becomes a ResNet of two stages.
_RESNET = {
    "use_timm_backbone": False,
    "backbone": None,
    "backbone_config": {
        "model_type": "resnet",
        "embedding_size": 8,
        "hidden_sizes": [8, 16],
        "depths": [1, 1],
        "layer_type": "basic",
        "out_features": ["stage2"],
    },
}

OVERRIDES: dict[str, dict[str, Any]] = {
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "num_layers": 2},
    "reformer": {
        "axial_pos_shape": [4, 4],
        "axial_pos_embds_dim": [16, 48],
        "attn_layers": ["local", "lsh"],
        "lsh_attn_chunk_length": 4,
        "local_attn_chunk_length": 4,
        "num_buckets": 2,
        "max_position_embeddings": 16,
    },
    "funnel": {"block_sizes": [1, 1], "d_head": 8, "d_inner": 112},
    "esm": {"vocab_size": 33, "mask_token_id": 32, "pad_token_id": 1},
    "longformer": {"attention_window": [4, 4]},
    "led": {"attention_window": [4, 4]},
    "big_bird": {"attention_type": "original_full"},
    "bigbird_pegasus": {"attention_type": "original_full"},
    **dict.fromkeys(("detr", "conditional_detr", "table-transformer", "dab-detr"), _RESNET),
}

# Sequence lengths that a model insists on.
SEQUENCE_LENGTHS: dict[str, int] = {"reformer": 16}
