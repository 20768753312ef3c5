"""What a model's result must become before it leaves the ranks: whole tensors, and caches that stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from modular_converter.parallel.engine.lean import LeanGroup


def hold(result: Any, number: int) -> dict[int, Any]:
    """The caches in a result, which stay on the ranks, under numbers from ``number`` on; in the same order on each."""
    found: list[Any] = []
    _caches(result, found)
    return {number + index: value for index, value in enumerate(found)}


def _caches(value: Any, found: list[Any]) -> None:
    if isinstance(value, (list, tuple)):
        for item in value:
            _caches(item, found)
    elif isinstance(value, Mapping):
        for item in value.values():
            _caches(item, found)
    elif not isinstance(value, (torch.Tensor, str, bytes, int, float)) and "Cache" in type(value).__name__:
        found.append(value)


def whole_heads(result: Any, model: Any, group: LeanGroup) -> Any:
    """Attention weights of a rank's own heads, ``(batch, heads, ...)``, put together with the others'.

    The library's outputs carry them in fields called ``…attentions``, one tensor a layer.
    """
    if not isinstance(result, Mapping):
        return result
    for key, value in list(result.items()):
        if str(key).endswith("attentions") and isinstance(value, (list, tuple)):
            result[key] = _gathered(value, _heads(getattr(model, "config", None)), group)  # type: ignore[index]
    return result


def _heads(config: Any) -> set[int]:
    """Every number of heads that the configuration and its parts name."""
    found: set[int] = set()
    for name, value in vars(config).items() if config is not None else ():
        if "head" in name and isinstance(value, int) and not isinstance(value, bool) and "dim" not in name:
            found.add(value)
        elif hasattr(value, "model_type"):
            found |= _heads(value)
    try:
        attribute = getattr(config, "num_attention_heads", None)
    except Exception:  # configurations whose layers differ refuse the question
        attribute = None
    return found | ({attribute} if isinstance(attribute, int) else set())


def _gathered(value: Any, heads: set[int], group: LeanGroup) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_gathered(item, heads, group) for item in value)
    if not isinstance(value, torch.Tensor) or value.dim() < 3 or value.shape[1] in heads:
        return value
    if value.shape[1] * group.size not in heads:
        return value
    return group.gather_last(value.movedim(1, -1).contiguous()).movedim(-1, 1)
