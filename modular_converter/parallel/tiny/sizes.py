"""The small value of a configuration field, from the quantity in its name: a table and its look-up.

Only small instances depend on these names, not the derivation of plans. Every width is divisible by 4, so that plans can
be proven on 2 and on 4 ranks.
"""

from __future__ import annotations

import re


HEADS, KV_HEADS, HEAD_DIM = 8, 4, 8
HIDDEN = HEADS * HEAD_DIM
BATCH, SEQUENCE = 2, 12
VOCABULARY = 160
WIDTH_KEPT = 32

# (Pattern of names, value); the first match counts. None keeps the default.
KINDS: tuple[tuple[str, int | None], ...] = (
    (r"_token_(id|index)$|_token_index$|_id$|_index$|_idx$|_ids$", None),
    (r"window_size|^window$|chunk_size|block_size|kernel|stride|^pool|padding|dilation|factor|ratio|^version$", None),
    (r"num_labels|num_channels|in_channels|in_chans|^channels$|num_frames|type_vocab|out_channels$", None),
    (r"^(num_)?experts_per_tok$|top_k|num_experts_per_tok|moe_topk|num_selected_experts", 2),
    (r"n_group|topk_group|num_expert_group|first_k_dense|num_shared_experts|n_shared_experts|decoder_sparse_step", 1),
    (r"expert.*(size|dim|width)", 48),
    (r"experts?$|num_local_experts", 8),
    (r"(key_value|kv)_heads?$|heads?_kv$|num_kv_heads|kv_n_heads|num_key_value_heads", KV_HEADS),
    (r"heads?$|^n_head$|num_heads|^encoder_num_heads|attention_heads", HEADS),
    (r"head_dim$|^d_kv$|head_size$|^kv_channels$|^d_head$|_head_dim$|^size_per_head$", HEAD_DIM),
    (r"^num_queries$", 10),
    (r"q_lora_rank", 24),
    (r"kv_lora_rank", 20),
    (r"(^|_)(num_.*layers|layers|n_layers?|depth|num_blocks|n_blocks)$|^num_hidden_groups$", 2),
    (r"vocab(ulary)?(_size)?$", VOCABULARY),
    (r"shared_expert_intermediate|moe_(intermediate|ffn)|moe_latent", 48),
    (r"intermediate|ffn|^d_ff$|^n_inner$|^d_inner$|feedforward|mlp_dim|^ff_dim|^dim_ff|hidden_layer_size", 112),
    (r"patch_size$", 8),
    (r"image_size$|input_size$|^img_size$", 32),
    (r"position|max_.*length|^n_ctx$|^n_positions$|max_source|max_target|context_length|max_seq", 128),
    (
        r"hidden_size|d_model|embed_dim|^n_embd$|^dim$|hidden_dim|_dim$|^width$|_width$|_size$|embedding_size|^n_embed",
        HIDDEN,
    ),
)
_COMPILED = tuple((re.compile(pattern), value) for pattern, value in KINDS)
LAYERS = re.compile(r"(^|_)(num_.*layers|layers|n_layers?|depth|num_blocks|n_blocks)$")
DEPTH_KINDS = re.compile(r"(^|_)(num_.*layers|layers|n_layers?|depth)$|vocab(ulary)?(_size)?$|experts?$")


def small_value(name: str, default: int) -> int:
    """The small value of an integer field, at most its default: one head remains one head."""
    for pattern, value in _COMPILED:
        if pattern.search(name):
            return default if value is None else min(value, default)
    return default


def width_of(default: int) -> int:
    """The small value of a width in a list: an eighth, at least 8; the same for all lists, so that towers and necks agree."""
    return max(8, default // 8) if default >= WIDTH_KEPT else default
