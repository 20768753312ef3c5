"""A model with the default sizes of its configuration class, without weights."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from modular_converter.parallel.tiny.fields import config_fields, is_config, raw
from modular_converter.parallel.tiny.shrink import shrink
from modular_converter.parallel.tiny.target import Target


_WIDTHS = re.compile(r"vocab(ulary)?(_size)?$|experts?$|embds_dim$")


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


def _wide(default: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The fields for vocabularies, numbers of experts and parts of a width (reformer), with their default values."""
    for item in config_fields(default):
        value = raw(default, item.name)
        if is_config(value):
            yield from _wide(value, f"{prefix}{item.name}.")
        elif type(value) in (int, list, tuple) and _WIDTHS.search(item.name):
            yield f"{prefix}{item.name}", value
