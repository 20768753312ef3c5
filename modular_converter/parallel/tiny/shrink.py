"""Shrink a configuration class to a small instance, field by field: small values by the names of fields, then relations.

Only small instances depend on these names, not the derivation of plans. Every width is divisible by 4, so that plans can
be proven on 2 and on 4 ranks.

There are four strategies, of which the first that gives a running model is used: ``sizes`` (a fixed small size for each
kind of field), ``ratios`` (the same, but widths keep their ratios, and fields without a default get a size), ``scale``
(all widths are divided by one power of two), ``depth`` (only depth, vocabulary and experts shrink).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from modular_converter.parallel.tiny.fields import (
    HEAD_FIELDS,
    KV_FIELDS,
    config_fields,
    configs_within,
    is_config,
    is_list_of_ints,
    raw,
)
from modular_converter.parallel.tiny.model_overrides import OVERRIDES
from modular_converter.parallel.tiny.target import Target


HEADS, KV_HEADS, HEAD_DIM = 8, 4, 8
HIDDEN = HEADS * HEAD_DIM
BATCH, SEQUENCE = 2, 12
VOCABULARY = 160
WIDTH_KEPT = 32

_HEADS = r"heads?$|^n_head$|num_heads|^encoder_num_heads|attention_heads"
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
    (_HEADS, HEADS),
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


def _counts_heads(name: str) -> bool:
    return next((pattern.pattern == _HEADS for pattern, _ in _COMPILED if pattern.search(name)), False)


def small_value(name: str, default: int) -> int:
    """The small value of an integer field, at most its default: one head remains one head."""
    for pattern, value in _COMPILED:
        if pattern.search(name):
            return default if value is None else min(value, default)
    return default


def width_of(default: int) -> int:
    """The small value of a width in a list: an eighth, at least 8; the same for all lists, so that towers and necks agree."""
    return max(8, default // 8) if default >= WIDTH_KEPT else default


Fields = dict[str, Any]
_LAYER_LISTS = ("layer_types", "layers_block_type", "mlp_layer_types", "hybrid_override_pattern")
_DEPTH = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_WIDTHS = ("hidden_size", "d_model", "embed_dim")
_TOWERS = ("vision_config", "audio_config", "encoder_config", "backbone_config")
_FOLDED = re.compile(r"intermediate|ffn|output_dim|projection|mlp_dim|out_hidden|inner|adapt")
_INDICES = re.compile(r"feature_layers?$|layers?_ind(ex|ices|exes)$|visual_index|attn_ind(ex|ices|exes)$|out_layers$")


def heads_agree(default: Any, values: Fields) -> None:
    """Keep the kind of key/value heads: as many as heads, one, or fewer than heads; the width is heads times head width.

    Heads are divisible by four: six heads, or two groups, would hide axes that can be sharded.
    """
    heads: Any = next((raw(default, name) for name in HEAD_FIELDS if raw(default, name) is not None), None)
    for name in filter(_counts_heads, [field.name for field in config_fields(default)]):
        if _takes(default, name) and 4 < _value(default, values, name) < HEADS:
            values[name] = 4
    small_heads: Any = next((values[name] for name in HEAD_FIELDS if name in values), None)
    for name in KV_FIELDS:
        kv = raw(default, name)
        known = isinstance(kv, int) and isinstance(heads, int) and isinstance(small_heads, int)
        if known and kv > 1 and _takes(default, name):
            values[name] = small_heads if kv == heads else min(KV_HEADS, max(1, small_heads // 2))
    if isinstance(small_heads, int) and small_heads < HEADS and "head_dim" not in values:
        for name in _WIDTHS:
            if values.get(name) == HIDDEN and HIDDEN % small_heads:
                values[name] = small_heads * HEAD_DIM


def _value(default: Any, values: Fields, name: str) -> int:
    """The small value of a field, or the class's default if there is none; 0 for other values than integers."""
    own = next(field.default for field in config_fields(default) if field.name == name)
    found = values.get(name, own)
    return found if isinstance(found, int) else 0


def _takes(default: Any, name: str) -> bool:
    """Whether the constructor takes a field, and its default is an integer."""
    field = next((field for field in config_fields(default) if field.name == name), None)
    return field is not None and field.init and isinstance(field.default, int)


def widths_in_ratio(default: Any, values: Fields) -> None:
    """Keep widths that are multiples or divisors of the hidden width so, for models that reshape one into the other."""
    name = next((name for name in _WIDTHS if isinstance(raw(default, name), int) and name in values), None)
    if name is None:
        return
    for field in list(values):
        if _FOLDED.search(field) and _takes(default, field):
            values[field] = _in_ratio(default, values | {field: values[name]}, field, raw(default, field), name)


def layer_indices(default: Any, values: Fields) -> None:
    """Keep indices of layers below the small depth (of their tower), and distinct if possible."""
    for field in config_fields(default):
        given = raw(default, field.name)
        if not _INDICES.search(field.name) or field.name in values:
            continue
        inner = next((values[name] for name in _TOWERS if is_config(values.get(name))), None)
        depth = values.get("depth") or next((values[name] for name in _DEPTH if name in values), None)
        if inner is not None and field.name.startswith(("vision", "global", "deepstack", "image")):
            depth = next((raw(inner, name) for name in ("depth", *_DEPTH) if raw(inner, name)), depth)
        if not isinstance(depth, int):
            continue
        if isinstance(given, int) and not isinstance(given, bool) and not -depth <= given < depth:
            values[field.name] = depth - 1 if given > 0 else -depth
        elif is_list_of_ints(given) and any(not -depth <= item < depth for item in given):
            values[field.name] = type(given)(index % depth for index in range(len(given)))


def feature_maps(default: Any, values: Fields) -> None:
    """Keep a backbone's number of feature maps: of the same stages, or of the last of the remaining layers."""
    names = raw(default, "out_features")
    if not isinstance(names, list) or len(names) < 2 or "out_features" in values:
        return
    depth_field = next((name for name in ("depth", *_DEPTH) if _takes(default, name)), None)
    stages = raw(default, "stage_names") or []
    if depth_field is not None and len(stages) == int(raw(default, depth_field)) + 1:
        depth = max(int(values.get(depth_field, 2)), len(names))
        values[depth_field] = depth
        names = [f"stage{index}" for index in range(depth - len(names) + 1, depth + 1)]
    for field in ("out_indices", "_out_indices", "_out_features"):
        values.pop(field, None)
    values["out_features"] = names


def heads_of_stages(default: Any, values: Fields) -> None:
    """Give the first of widening stages four heads, and the others more in the ratio of their defaults."""
    width, heads = values.get("embed_dim"), values.get("num_heads", raw(default, "num_heads"))
    if (
        isinstance(width, int)
        and isinstance(heads, (list, tuple))
        and heads
        and (heads[-1] > heads[0] or width % heads[0])
    ):
        values["embed_dim"] = min(width, 4 * HEAD_DIM)
        values["num_heads"] = type(heads)(4 * item // heads[0] for item in heads)


def tile_sizes(default: Any, values: Fields) -> None:
    """Make the resolutions of images multiples of the small tile size."""
    inner = next((values[name] for name in _TOWERS if is_config(values.get(name))), None)
    size = getattr(inner, "image_size", None)
    if isinstance(getattr(default, "image_grid_pinpoints", None), list) and isinstance(size, int):
        values["image_grid_pinpoints"] = [[size, 2 * size], [2 * size, size]]


def mamba_agrees(default: Any, values: Fields) -> None:
    """Make heads times head width the expanded width."""
    key = next((name for name in ("mamba_n_heads", "mamba_num_heads") if name in values), None)
    if key is None:
        return
    expand = int(getattr(default, "mamba_expand", getattr(default, "expand", 2)) or 2)
    dim = "mamba_d_head" if hasattr(default, "mamba_d_head") else "mamba_head_dim"
    values[dim] = expand * HIDDEN // int(values[key])
    if isinstance(getattr(default, "mamba_d_ssm", None), int):  # another name of the expanded width
        values["mamba_d_ssm"] = expand * HIDDEN


def shorten_layer_lists(default: Any, values: Fields) -> None:
    """Shorten lists with the kind of each layer: one layer of each kind, in order of first appearance."""
    for name in _LAYER_LISTS:
        kinds = getattr(default, name, None)
        if not isinstance(kinds, (list, tuple)) or not kinds or name in values:
            continue
        distinct = list(dict.fromkeys(kinds))
        depth_field = next((field for field in _DEPTH if field in values), None)
        if depth_field is None or len(kinds) != getattr(default, depth_field, -1):
            continue
        depth = max(2, len(distinct), int(values[depth_field]))
        values[depth_field] = depth
        declared = {field.name for field in config_fields(default)}
        if name in declared:
            values[name] = (distinct * depth)[:depth]


def periods(default: Any, values: Fields) -> None:
    """Set periods of layer kinds to two layers, with the kind in the second of them."""
    for field in config_fields(default):
        if field.name.endswith("_layer_period") and isinstance(field.default, int) and field.default > 1:
            values[field.name] = 2
            offset = field.name.removesuffix("_period") + "_offset"
            if _takes(default, offset):
                values[offset] = 1


def small_tokens(default: Any, values: Fields) -> None:
    """Replace special token ids above the small vocabulary by distinct ids in it, from the top down."""
    limit = values.get("vocab_size", getattr(default, "vocab_size", VOCABULARY))
    if not isinstance(limit, int) or hasattr(default, "text_config"):
        limit = VOCABULARY
    free = min(limit, VOCABULARY) - 1
    for field in config_fields(default):
        if not field.name.endswith(("_token_id", "_token_index", "_token_ids")) and field.name != "mask_id":
            continue
        value = raw(default, field.name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= limit:
            values[field.name] = free
            free -= 1
        elif isinstance(value, list) and any(isinstance(item, int) and item >= limit for item in value):
            values[field.name] = [free - i for i in range(len(value))]
            free -= len(value)


def rotary_sections(default: Any, values: Fields) -> None:
    """Make multi-axis rotary sections add up to half of the rotated part of a head."""
    if "mrope_section" not in (getattr(default, "ignore_keys_at_rope_validation", None) or ()):
        parameters = getattr(default, "rope_parameters", None)
        if not isinstance(parameters, dict) or "mrope_section" not in parameters:
            return
    usual = {"rope_type": "default", "rope_theta": 10000.0}
    by_kind = getattr(default, "rope_parameters", None) == {}
    parameters = dict(getattr(default, "rope_parameters", None) or usual)
    heads = int(values.get("num_attention_heads", raw(default, "num_attention_heads") or HEADS))
    width = int(values.get("hidden_size", raw(default, "hidden_size") or HIDDEN))
    head = int(values.get("head_dim", raw(default, "head_dim") or 0)) or width // heads
    part = parameters.get("partial_rotary_factor", getattr(default, "partial_rotary_factor", None)) or 1.0
    half = int(head * part) // 2
    third = half // 3 or half // 2
    parameters["mrope_section"] = [half - 2 * third, third, third] if half > 2 else [half - half // 2, half // 2, 0]
    kinds = dict.fromkeys(getattr(default, "layer_types", None) or ())
    values["rope_parameters"] = {kind: dict(parameters) for kind in kinds} if by_kind else parameters


def per_layer(default: Any, values: Fields) -> None:
    """Keep values that differ by layer for the remaining layers, in the ratio of their defaults to the common value."""
    if not getattr(default, "is_heterogeneous", False):
        return
    given: dict[int, Fields] = default._heterogeneity_spec.per_layer_overrides
    kinds: Sequence[str] = getattr(default, "layer_types", None) or []
    depth = next((values[name] for name in _DEPTH if name in values), len(kinds))
    left = values.get("layer_types") or list(kinds)[:depth] or [""] * depth
    result = {}
    for index in range(depth):
        original = list(kinds).index(left[index]) if left[index] in kinds else index
        if original in given:
            result[index] = {name: _in_ratio(default, values, name, item) for name, item in given[original].items()}
            _add_head_parts(default, values, given[original], result[index])
    values["per_layer_config"] = result


def _add_head_parts(default: Any, values: Fields, given: Fields, layer: Fields) -> None:
    """Make a head's width the sum of its rotated and its other part, if it is so in the layer's default."""
    parts = ("qk_nope_head_dim", "qk_rope_head_dim")
    usual = [given.get(name, raw(default, name)) for name in parts]
    if None not in usual and sum(usual) == given.get("head_dim", raw(default, "head_dim")):
        layer["head_dim"] = sum(layer.get(name, values.get(name, raw(default, name))) for name in parts)


def _in_ratio(default: Any, values: Fields, name: str, item: Any, to: str = "") -> Any:
    """The small value with the ratio to the small ``to`` (by default ``name``) that ``item`` has to the default of ``to``."""
    base = raw(default, to or name)
    small = values.get(name, base)
    if type(item) is not int or type(base) is not int or type(small) is not int:
        return item
    if base and item % base == 0:
        return small * (item // base)
    if item and base % item == 0:
        return max(1, small // (base // item))
    return small_value(name, item)


def local_backbones(default: Any, values: Fields) -> None:
    """Replace a backbone of a library that may be missing by a small ResNet with as many feature maps."""
    for field in config_fields(default):
        inner = default.__dict__.get(field.name)
        if not is_config(inner) or inner.model_type != "timm_backbone":
            continue
        from transformers import ResNetConfig

        maps = len(inner.out_indices or (1,))
        stages = [f"stage{index}" for index in range(1, 5)]
        values[field.name] = ResNetConfig(
            embedding_size=8,
            hidden_sizes=[8, 16, 24, 32],
            depths=[1, 1, 1, 1],
            layer_type="basic",
            out_features=stages[-maps:],
        )


def fill_missing(default: Any, values: Fields) -> None:
    """Fill fields without a default that models need nevertheless: head widths, key/value heads, experts, layer kinds."""
    for field in config_fields(default):
        if field.name in values or raw(default, field.name) is not None:
            continue
        size = small_value(field.name, 1 << 30)
        if size < 1 << 30 and "int" in field.annotation and "list" not in field.annotation:
            values[field.name] = size
        elif field.name == "mlp_layer_types":
            values[field.name] = ["dense", "sparse"]


STRATEGIES = ("sizes", "ratios", "scale", "depth")
_SCALE = 8
# Lists of widths that start narrow and end below this are unchanged: their entries must stay in order.
LARGE = 640
_NO_STAGES = re.compile(r"kernel|stride|ratio|vocab|image|patch|window")
# Fields of sampling, training or text decoding, which no size of a weight depends on.
_UNTOUCHED = ("initializer", "dropout", "eps", "epsilon", "loss", "temperature", "num_return", "tokens_to", "_bits")


def shrink(config_class: type[Any], strategy: str, overrides: Mapping[str, Any] | None = None) -> Any:
    """A small configuration of ``config_class``.

    Args:
        config_class: a configuration class; fields without a default must be among the overrides.
        strategy: one of ``STRATEGIES``.
        overrides: values that take precedence over the rules; dotted names lead into sub-configurations.

    Raises the exceptions of the configuration's own validation.
    """
    given = overrides or {}
    needed = (
        field.name for field in config_fields(config_class) if field.by_hand and field.default is dataclasses.MISSING
    )
    default = config_class(**{name: given[name] for name in needed if name in given})
    return _shrink_like(default, strategy, given, default)


def _shrink_like(default: Any, strategy: str, given: Mapping[str, Any], own: Any) -> Any:
    """A small copy of ``default``.

    Args:
        own: the default of its class; values that differ from it were set by the outer configuration, and shrink themselves.
    """
    overrides = {**OVERRIDES.get(default.model_type, {}), **given}
    values: dict[str, Any] = {}
    scalar = {"scale": _by_scale, "depth": _by_depth}.get(strategy, _by_kind)
    keeps_widths = _keeps_widths(default)
    local_backbones(default, values)
    for field in config_fields(default):
        if not field.init or field.name in overrides or field.name in values:
            continue
        value = raw(default, field.name)
        if is_config(value):
            inner = _shrink_like(value, strategy, _below(overrides, field.name), type(value)())
            values[field.name] = inner.to_dict() if field.by_hand else inner
            continue
        usual = None if field.default is dataclasses.MISSING else field.default
        if default is not own and _is_plain(value) and value != raw(own, field.name):
            plain = isinstance(value, (bool, str))
            values[field.name] = value if plain else _shrink_value(field.name, value, scalar, keeps_widths)
            continue
        if usual is None or isinstance(usual, (bool, str)):
            continue
        small = _shrink_value(field.name, usual, scalar, keeps_widths)
        if small is not usual and small != usual:
            values[field.name] = small
    _relate(default, strategy, values, overrides)
    config = type(default)(**values)
    for name in ("hidden_dropout_prob", "attention_dropout", "layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
        if hasattr(config, name) and isinstance(getattr(config, name), float):
            setattr(config, name, 0.0)
    return config


def _relate(default: Any, strategy: str, values: dict[str, Any], overrides: Mapping[str, Any]) -> None:
    """Adjust the values to the relations that models require; given values are unchanged."""
    if strategy in ("sizes", "ratios"):
        heads_agree(default, values)
        mamba_agrees(default, values)
        heads_of_stages(default, values)
    if strategy == "ratios":
        widths_in_ratio(default, values)
    shorten_layer_lists(default, values)
    periods(default, values)
    layer_indices(default, values)
    feature_maps(default, values)
    tile_sizes(default, values)
    given = {name: value for name, value in overrides.items() if "." not in name}
    values.update(given)
    small_tokens(default, values)  # after the given vocabulary is set
    values.update(given)
    if strategy == "ratios":
        fill_missing(default, values)
    rotary_sections(default, values)
    per_layer(default, values)
    values.update(given)


def _below(overrides: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    start = prefix + "."
    return {name[len(start) :]: value for name, value in overrides.items() if name.startswith(start)}


def _keeps_widths(default: Any) -> bool:
    """Whether widths of stages must be unchanged.

    Either a list of widths starts so narrow that shrinking would change the order of its entries, or widths are also in
    lists of lists, which do not shrink.
    """
    for field in config_fields(default):
        value = raw(default, field.name)
        if is_list_of_ints(value) and _is_width(field.name):
            narrow = any(8 < item < WIDTH_KEPT for item in value) and not _NO_STAGES.search(field.name)
            if narrow and WIDTH_KEPT <= max(value) < LARGE and len(value) > 2:
                return True
        if isinstance(value, (list, tuple)) and any(_has_wide_row(item) for item in value):
            return True
    return False


def _is_plain(value: Any) -> bool:
    return isinstance(value, (bool, int, str)) or is_list_of_ints(value)


def _has_wide_row(value: Any) -> bool:
    if not isinstance(value, (list, tuple)):
        return False
    return any(_has_wide_row(item) or (type(item) is int and item >= WIDTH_KEPT) for item in value)


def _shrink_value(name: str, value: Any, scalar: Callable[[str, int], int], keeps_widths: bool = False) -> Any:
    if any(part in name for part in _UNTOUCHED):
        return value
    if isinstance(value, int):
        return scalar(name, value)
    if is_list_of_ints(value):
        if keeps_widths and _is_width(name):
            return value
        if len(value) > 1 and len(set(value)) == 1 and _is_width(name) and value[0] > HIDDEN and scalar is _by_kind:
            return type(value)([HIDDEN] * len(value))
        return type(value)(_list_item(name, item, scalar) for item in value)
    return value


def _list_item(name: str, item: int, scalar: Callable[[str, int], int]) -> int:
    if "depth" in name or ("layers" in name and "proj_layers" not in name) or "block" in name and item < 64:
        return min(item, 1) if scalar is not _by_scale else min(item, 2)
    return width_of(item) if _is_width(name) else item


def _is_width(name: str) -> bool:
    return any(word in name for word in ("size", "dim", "width", "channels", "embed", "planes"))


def _by_kind(name: str, value: int) -> int:
    return small_value(name, value)


def _by_scale(name: str, value: int) -> int:
    if DEPTH_KINDS.search(name):
        return small_value(name, value)
    if any(word in name for word in ("size", "dim", "width", "model", "embd", "ff", "inner")) and value >= 64:
        return value // _SCALE if "image" not in name and "patch" not in name else value
    return value


def _by_depth(name: str, value: int) -> int:
    return small_value(name, value) if DEPTH_KINDS.search(name) else value


_KEPT_WIDTHS = re.compile(r"vocab(ulary)?(_size)?$|experts?$|embds_dim$")


def published(target: Target, overrides: Mapping[str, Any] | None = None) -> torch.nn.Module:
    """A model with the default sizes of its classes, on the meta device, with few layers.

    Args:
        overrides: configuration values that replace defaults.

    Raises the exceptions of the model's own classes.
    """
    kind, config = target.load()
    made = shrink(config, "depth", {**dict(_wide(config())), **(overrides or {})})
    with torch.device("meta"):
        model: torch.nn.Module = kind(made)
    return model.eval()


def _wide(default: Any) -> Iterator[tuple[str, Any]]:
    """The fields for vocabularies, numbers of experts and parts of a width (reformer), with their default values."""
    for prefix, config in configs_within(default):
        for item in config_fields(config):
            value = raw(config, item.name)
            if type(value) in (int, list, tuple) and _KEPT_WIDTHS.search(item.name):
                yield f"{prefix}{item.name}", value
