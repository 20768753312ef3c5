"""Configuration values for small instances of models that the rules do not cover. Data only: model type -> overrides.

Dotted names lead into sub-configurations. Each entry keeps a relation between sizes that the model's code requires.
"""

from __future__ import annotations

from typing import Any


# Replaces a default backbone of a library that may be missing: a ResNet of two stages.
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
    # The placeholder token has no id by default.
    "blip-2": {"image_token_index": 150},
    "instructblip": {"image_token_index": 150},
    "instructblipvideo": {"video_token_index": 150},
    "voxtral": {"audio_token_id": 150},
    # Four patches together have the input width of the projector.
    "llama4_vision_model": {"intermediate_size": 256},
    "gemma3": {"mm_tokens_per_image": 4},
    "shieldgemma2": {"mm_tokens_per_image": 4, "yes_token_index": 20, "no_token_index": 21},
    "aria": {"projector_patch_to_query_dict": {16: 4}},
    "granite4_vision": {"deepstack_layer_map": [[0, 0]], "downsample_rate": "1/2"},
    "zoedepth": {"bottleneck_features": 64},
    "chmv2": {
        "backbone_config.return_class_token": True,
        "post_process_channels": [16, 32, 64, 128],
        "number_output_channels": 32,
    },
    # A map of the vocabulary names the image tokens.
    "chameleon": {
        "vq_config.base_channels": 32,
        "vq_config.latent_channels": 64,
        "vq_config.num_embeddings": 64,
        "vocabulary_map": {"<image>": 150, **{f"IMGIMG{c}{c}A": 100 + i for i, c in enumerate("ABCDEFGH")}},
    },
    "emu3": {"vocabulary_map": {"<image>": 150, "<|extra_200|>": 149, "<|visual token 000001|>": 100}},
    # Layer kinds and sizes without a default, or with one that does not fit few layers.
    "bamba": {"attn_layer_indices": [1]},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"], "num_hidden_layers": 2},
    "xmod": {"default_language": "en_XX"},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], "num_hidden_layers": 2},
    "recurrent_gemma": {"block_types": ["recurrent", "attention"]},
    "zamba": {
        "layers_block_type": ["linear_attention", "hybrid", "linear_attention", "hybrid"],
        "num_hidden_layers": 4,
    },
    "step3p5": {"sliding_window": 8},
    "dbrx": {"attn_config.rope_theta": 10000.0, "attn_config.kv_n_heads": 4, "attn_config.clip_qkv": 8.0},
    "moonshine_streaming": {"num_key_value_heads": 8},
    "neomme": {"head_dim": 16},
    **dict.fromkeys(
        ("paddleocr_vl_text", "ernie4_5_vl_moe_text"),
        {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}},
    ),
    "kosmos-2": {"latent_query_num": 6},
    "mimi": {"upsample_groups": 16, "num_filters": 16},
    **dict.fromkeys(("mimi_encoder", "mimi_decoder"), {"upsample_groups": 64, "num_filters": 16}),
    **dict.fromkeys(
        ("pocket_tts_audio_tokenizer", "pocket_tts_audio_tokenizer_decoder"),
        {"upsample_groups": 64, "num_filters": 16},
    ),
    # Widths and lengths that no rule shrinks, and that would make the instance slow.
    "dac": {"downsampling_ratios": [2, 2], "upsampling_ratios": [2, 2], "encoder_hidden_size": 16, "n_codebooks": 2},
    "xcodec": {
        "acoustic_model_config.downsampling_ratios": [8, 5, 4, 2],
        "acoustic_model_config.upsampling_ratios": [2, 4, 5, 8],
        "acoustic_model_config.encoder_hidden_size": 16,
        "acoustic_model_config.decoder_hidden_size": 64,
    },
    # A grouped matrix product requires shards whose widths are multiples of 16 bytes.
    "dots3_note": {"vision_config.moe_intermediate_size": 256},
    "superglue": {"gnn_layers_types": ["self", "cross"], "sinkhorn_iterations": 4},
    "univnet": {
        "resblock_kernel_sizes": [3],
        "resblock_stride_sizes": [4],
        "resblock_dilation_sizes": [[1, 3]],
        "model_hidden_channels": 16,
    },
    "whisper": {"max_source_positions": 40},
    "falcon_h1": {"mamba_d_state": 32, "mamba_chunk_size": 8},
    "pe_audio": {"audio_config.dac_config.downsampling_ratios": [8, 8]},
    "pe_audio_encoder": {"dac_config.downsampling_ratios": [8, 8]},
    "muse_glimmer": {"text_config.hidden_size": 416, "text_config.intermediate_size": 1248},
    "pp_ocrv5_mobile_rec": {"head_out_channels": 160, "backbone_config.scale": 0.25},
    "pp_formulanet": {
        "vision_config.output_channels": 32,
        "vision_config.post_conv_in_channels": 32,
        "vision_config.post_conv_mid_channels": 64,
        "vision_config.post_conv_out_channels": 128,
    },
    "vits": {
        "upsample_initial_channel": 64,
        "upsample_rates": [2, 2, 2, 2],
        "upsample_kernel_sizes": [4, 4, 4, 4],
        "resblock_kernel_sizes": [3],
        "resblock_dilation_sizes": [[1, 3, 5]],
        "duration_predictor_num_flows": 2,
        "prior_encoder_num_flows": 2,
    },
    "dinov3_convnext": {"hidden_sizes": [16, 32, 64, 128], "depths": [1, 1, 1, 1]},
    "efficientloftr": {"stage_num_blocks": [1, 1, 1, 1]},
    "clap": {
        "hidden_size": 64,
        "projection_dim": 64,
        "text_config.hidden_size": 64,
        "text_config.intermediate_size": 112,
        "text_config.num_attention_heads": 8,
        "text_config.projection_dim": 64,
        "audio_config.patch_embeds_hidden_size": 32,
        "audio_config.hidden_size": 256,
        "audio_config.num_attention_heads": [4, 4, 4, 4],
        "audio_config.projection_dim": 64,
    },
    "vjepa2": {"frames_per_clip": 4},
    "sam3_tracker": {
        "vision_config.backbone_config.image_size": 112,
        "prompt_encoder_config.image_size": 112,
        "vision_config.backbone_feature_sizes": [[32, 32], [16, 16], [8, 8]],
    },
    "rf_detr": {"num_queries": 3, "group_detr": 2},
    "lw_detr_vit": {"image_size": 64},
    "qwen4_exp_text": {
        "indexer_n_heads": 4,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 16,
        "indexer_budget": 8,
        "indexer_compress_ratio": 2,
    },
    # Time series: the horizon has no default.
    **dict.fromkeys(
        ("autoformer", "informer", "time_series_transformer"),
        {"prediction_length": 8, "context_length": 16, "lags_sequence": [1, 2, 3]},
    ),
    # Convolutional towers whose widths depend on each other.
    "bit": {"num_groups": 4},
    "textnet": {"stem_out_channels": 8},
    **dict.fromkeys(
        ("efficientnet", "align_vision_model"),
        {"width_coefficient": 0.25, "depth_coefficient": 0.2, "hidden_dim": 320, "image_size": 64},
    ),
    **dict.fromkeys(("swin", "donut-swin"), {"window_size": 2, "image_size": 64}),
    **dict.fromkeys(("sam_vision_model", "sam_hq_vision_model"), {"output_channels": 64, "num_pos_feats": 32}),
    "sam2_hiera_det_model": {
        "hidden_size": 32,
        "embed_dim_per_stage": [32, 64, 128, 256],
        "num_attention_heads_per_stage": [4, 8, 16, 32],
        "blocks_per_stage": [1, 1, 2, 1],
        "global_attention_blocks": [3],
        "window_size_per_stage": [8, 4, 4, 4],
        "image_size": [64, 64],
    },
    "sam2_vision_model": {
        "backbone_channel_list": [256, 128, 64, 32],
        "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
        "fpn_hidden_size": 64,
    },
    "sam2": {"prompt_encoder_config.image_size": 64, "prompt_encoder_config.patch_size": 16},
    "depth_pro": {"patch_size": 32, "intermediate_hook_ids": [1, 0]},
    "clvp_encoder": {"hidden_size": 128, "num_attention_heads": 4},
    "mobilevit": {"hidden_sizes": [32, 48, 64]},
    "cvt": {"depth": [1, 2, 3]},
    "vitmatte": {"fusion_hidden_sizes": [32, 24, 16, 8], "backbone_config.patch_size": 16},
    **dict.fromkeys(("emu3_vqgan", "janus_vqgan"), {"base_channels": 32}),
    **dict.fromkeys(
        (
            "vibevoice_acoustic_tokenizer",
            "vibevoice_acoustic_tokenizer_encoder",
            "vibevoice_acoustic_tokenizer_decoder",
            "vibevoice_semantic_tokenizer",
        ),
        {"num_filters": 4, "depths": [1, 1, 1, 1, 1, 1, 1]},
    ),
    **dict.fromkeys(("pp_doclayout_v3", "pp_doclayout_v4"), {"x4_feat_dim": 16}),
    "hiera": {"image_size": [64, 64]},
    "yolos": {"image_size": [64, 96]},
    "perceiver": {"d_latents": 64, "num_latents": 16, "d_model": 48, "num_self_attends_per_block": 2},
    **dict.fromkeys(("detr", "conditional_detr", "table-transformer", "dab-detr"), _RESNET),
}

# Sequence lengths that a model requires.
SEQUENCE_LENGTHS: dict[str, int] = {"reformer": 16}
