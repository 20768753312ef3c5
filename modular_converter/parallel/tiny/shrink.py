"""Shrink a configuration class to a small instance, field by field.

There are four strategies, of which the first that gives a running model is used: ``sizes`` (a fixed small size for each
kind of field), ``ratios`` (the same, but widths keep their ratios, and fields without a default get a size), ``scale``
(all widths are divided by one power of two), ``depth`` (only depth, vocabulary and experts shrink).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from typing import Any

from modular_converter.parallel.tiny import relations
from modular_converter.parallel.tiny.fields import config_fields, is_config, is_list_of_ints, raw
from modular_converter.parallel.tiny.model_overrides import OVERRIDES
from modular_converter.parallel.tiny.sizes import DEPTH_KINDS, HIDDEN, WIDTH_KEPT, small_value, width_of


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
    relations.local_backbones(default, values)
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
    return _construct(type(default), values)


def _relate(default: Any, strategy: str, values: dict[str, Any], overrides: Mapping[str, Any]) -> None:
    """Adjust the values to the relations that models require; given values are unchanged."""
    if strategy in ("sizes", "ratios"):
        relations.heads_agree(default, values)
        relations.mamba_agrees(default, values)
        relations.heads_of_stages(default, values)
    if strategy == "ratios":
        relations.widths_in_ratio(default, values)
    relations.shorten_layer_lists(default, values)
    relations.periods(default, values)
    relations.layer_indices(default, values)
    relations.feature_maps(default, values)
    relations.tile_sizes(default, values)
    given = {name: value for name, value in overrides.items() if "." not in name}
    values.update(given)
    relations.small_tokens(default, values)  # after the given vocabulary is set
    values.update(given)
    if strategy == "ratios":
        relations.fill_missing(default, values)
    relations.rotary_sections(default, values)
    relations.per_layer(default, values)
    values.update(given)


def _construct(config_class: type[Any], values: dict[str, Any]) -> Any:
    config = config_class(**values)
    for name in ("hidden_dropout_prob", "attention_dropout", "layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
        if hasattr(config, name) and isinstance(getattr(config, name), float):
            setattr(config, name, 0.0)
    return config


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
