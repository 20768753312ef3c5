"""Caches of keys, values and states among the arguments and results of calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.trace.record import leaves_in


@dataclass(frozen=True)
class Held:
    """A value that is treated as a cache, whatever its class."""

    value: Any


def caches_in(value: Any) -> list[Any]:
    """The caches in nested lists, tuples and mappings, each once, in order."""
    leaves = (
        one.value if isinstance(one, Held) else one
        for one in leaves_in(value)
        if isinstance(one, Held) or is_cache(one)
    )
    return list({id(one): one for one in leaves}.values())


def is_cache(value: Any) -> bool:
    """Whether a value is a cache, judged by the names of its classes, since each model may have a class of its own."""
    if value is None or isinstance(value, (torch.Tensor, str, bytes, int, float, type)):
        return False
    names = [kind.__name__ for kind in type(value).__mro__]
    return any("Cache" in name for name in names) and not names[0].endswith("Config")


def has_content(value: Any, seen: set[int] | None = None) -> bool:
    """Whether a cache holds states, or memory for them: tensors with entries and at least two dimensions."""
    if isinstance(value, torch.Tensor):
        return value.dim() > 1 and value.numel() > 0
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, type):
        return False
    seen.add(id(value))
    if isinstance(value, (list, tuple)):
        return any(has_content(item, seen) for item in value)
    if isinstance(value, Mapping):
        return any(has_content(item, seen) for item in value.values())
    return any(has_content(item, seen) for item in getattr(value, "__dict__", {}).values())
