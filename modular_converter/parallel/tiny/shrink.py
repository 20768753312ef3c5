"""Shrink a configuration class to a small instance, by walking its dataclass fields.

A ladder of strategies, the first that builds and runs wins: ``sizes`` (fixed small sizes by kind of field), ``scale``
(all widths divided by one power of two, relations kept), ``depth`` (only depth, vocabulary and experts are cut).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from modular_converter.parallel.tiny.sizes import (
    DEPTH_KINDS,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    VOCABULARY,
    small_value,
    width_of,
)


STRATEGIES = ("sizes", "scale", "depth")
_SCALE = 8
_HEAD_FIELDS = ("num_attention_heads", "n_head", "num_heads", "n_heads", "encoder_attention_heads")
_KV_FIELDS = ("num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num")
# Fields of sampling, training or text decoding: they size no weight.
_UNTOUCHED = ("initializer", "dropout", "eps", "epsilon", "loss", "temperature", "num_return", "tokens_to", "_bits")


def shrink(config_class: type[Any], strategy: str, overrides: Mapping[str, Any] | None = None) -> Any:
    """A small configuration of ``config_class``.

    Args:
        config_class: a configuration dataclass whose fields all have defaults.
        strategy: one of ``STRATEGIES``.
        overrides: values that win over the rules; dotted names reach sub-configurations.

    Raises:
        Exception: whatever the configuration's own validation raises for the small values.
    """
    default = config_class()
    return _shrink_like(default, strategy, overrides or {})


def _shrink_like(default: Any, strategy: str, overrides: Mapping[str, Any]) -> Any:
    values: dict[str, Any] = {}
    scalar = {"sizes": _by_kind, "scale": _by_scale, "depth": _by_depth}[strategy]
    for field in dataclasses.fields(default):
        if not field.init or field.name in overrides:
            continue
        value = getattr(default, field.name, None)
        if _is_config(value):
            values[field.name] = _shrink_like(value, strategy, _below(overrides, field.name))
            continue
        given = _class_default(field)
        if given is None or isinstance(given, (bool, str)):
            continue
        small = _shrink_value(field.name, given, scalar)
        if small is not given and small != given:
            values[field.name] = small
    if strategy == "sizes":
        _agree(default, values)
    _shorten_layer_lists(default, values)
    _small_tokens(default, values)
    values.update({name: value for name, value in overrides.items() if "." not in name})
    if "backbone" in type(default).__name__.lower() and "out_features" in values:
        values.pop("out_features")
    return _construct(type(default), values)


def _construct(config_class: type[Any], values: dict[str, Any]) -> Any:
    config = config_class(**values)
    for name in ("hidden_dropout_prob", "attention_dropout", "layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
        if hasattr(config, name) and isinstance(getattr(config, name), float):
            setattr(config, name, 0.0)
    return config


def _is_config(value: Any) -> bool:
    return hasattr(value, "model_type") and dataclasses.is_dataclass(value)


def _below(overrides: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    start = prefix + "."
    return {name[len(start) :]: value for name, value in overrides.items() if name.startswith(start)}


def _class_default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None


def _shrink_value(name: str, value: Any, scalar: Callable[[str, int], int]) -> Any:
    if any(part in name for part in _UNTOUCHED):
        return value
    if isinstance(value, int):
        return scalar(name, value)
    if isinstance(value, (list, tuple)) and value and all(type(item) is int for item in value):
        return type(value)(_list_item(name, item, scalar) for item in value)
    return value


def _list_item(name: str, item: int, scalar: Callable[[str, int], int]) -> int:
    if "depth" in name or "layers" in name or "block" in name and item < 64:
        return min(item, 1) if scalar is not _by_scale else min(item, 2)
    if any(word in name for word in ("size", "dim", "width", "channels", "embed", "planes")):
        return width_of(item)
    return item


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


def _agree(default: Any, values: dict[str, Any]) -> None:
    """Keep relations: key/value heads equal heads where the default has them equal, one for multi-query; widths."""
    heads = next((getattr(default, name) for name in _HEAD_FIELDS if hasattr(default, name)), None)
    for name in _HEAD_FIELDS:
        if 4 < values.get(name, getattr(default, name, None) or 0) < HEADS and _takes(default, name):
            values[name] = 4
    small_heads = next((values[name] for name in _HEAD_FIELDS if name in values), None)
    for name in _KV_FIELDS:
        kv = getattr(default, name, None)
        if isinstance(kv, int) and kv > 1 and isinstance(heads, int) and small_heads and _takes(default, name):
            values[name] = small_heads if kv == heads else KV_HEADS
    if isinstance(small_heads, int) and small_heads < HEADS and "head_dim" not in values:
        for name in ("hidden_size", "d_model", "embed_dim"):
            if values.get(name) == HIDDEN and HIDDEN % small_heads:
                values[name] = small_heads * HEAD_DIM
    if "mamba_n_heads" in values or "mamba_num_heads" in values:
        expand = int(getattr(default, "mamba_expand", getattr(default, "expand", 2)) or 2)
        key = "mamba_n_heads" if "mamba_n_heads" in values else "mamba_num_heads"
        dim = "mamba_d_head" if hasattr(default, "mamba_d_head") else "mamba_head_dim"
        values[dim] = expand * HIDDEN // int(values[key])


def _takes(default: Any, name: str) -> bool:
    """Whether a configuration's constructor takes a field, with a value of the class's own for it."""
    given = next((_class_default(field) for field in dataclasses.fields(default) if field.name == name), None)
    return given is not None


def _shorten_layer_lists(default: Any, values: dict[str, Any]) -> None:
    """Lists that name one kind a layer: one layer of each kind, in order of first appearance."""
    for name in ("layer_types", "layers_block_type", "mlp_layer_types", "hybrid_override_pattern"):
        kinds = getattr(default, name, None)
        if not isinstance(kinds, (list, tuple)) or not kinds or name in values:
            continue
        distinct = list(dict.fromkeys(kinds))
        depth_field = next((f for f in ("num_hidden_layers", "n_layer", "num_layers") if f in values), None)
        if depth_field is None or len(kinds) != getattr(default, depth_field, -1):
            continue
        depth = max(2, len(distinct), int(values[depth_field]))
        values[depth_field] = depth
        declared = {field.name for field in dataclasses.fields(default)}
        if name in declared:
            values[name] = (distinct * depth)[:depth]


def _small_tokens(default: Any, values: dict[str, Any]) -> None:
    """Special token ids that lie above the small vocabulary become distinct small ones, from the top down."""
    limit = values.get("vocab_size", getattr(default, "vocab_size", VOCABULARY))
    if not isinstance(limit, int) or hasattr(default, "text_config"):
        limit = VOCABULARY
    free = min(limit, VOCABULARY) - 1
    for field in dataclasses.fields(default):
        if not field.name.endswith(("_token_id", "_token_index", "_token_ids")) and field.name != "mask_id":
            continue
        token = getattr(default, field.name, None)
        if isinstance(token, int) and not isinstance(token, bool) and token >= limit:
            values[field.name] = free
            free -= 1
        elif isinstance(token, list) and any(isinstance(item, int) and item >= limit for item in token):
            values[field.name] = [free - i for i in range(len(token))]
            free -= len(token)
