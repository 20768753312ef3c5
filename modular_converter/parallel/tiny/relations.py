"""Relations between the fields of a small configuration that models rely on: each rule edits the values."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from modular_converter.parallel.tiny.fields import (
    HEAD_FIELDS,
    KV_FIELDS,
    config_fields,
    is_config,
    is_list_of_ints,
    raw,
)
from modular_converter.parallel.tiny.sizes import HEAD_DIM, HEADS, HIDDEN, KV_HEADS, VOCABULARY, small_value


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
    for name in HEAD_FIELDS:
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
