"""Branches on data: the places in a model's code, and a forward that goes the other way at one of them."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from modular_converter.parallel.tiny.build import Small


class _Sides(TorchFunctionMode):
    """Notes where code asks a tensor for a truth or a number; at one place, the answers lead to the other side."""

    def __init__(self, files: frozenset[str], turned: str = "") -> None:
        super().__init__()
        self.files, self.turned, self.met = files, turned, dict[str, None]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") not in ("__bool__", "item", "__float__", "tolist"):
            return result
        site = self._site()
        if site is None:
            return result
        self.met[site] = None
        if site != self.turned:
            return result
        return _turned(result)

    def _site(self) -> str | None:
        """The file and line of the model's own code that asks."""
        frame: Any = sys._getframe(2)
        while frame is not None and "/torch/" in frame.f_code.co_filename:
            frame = frame.f_back
        found = frame is not None and frame.f_code.co_filename in self.files
        return f"{frame.f_code.co_filename}:{frame.f_lineno}" if found else None


class _Turned(float):
    """A number whose comparisons come out the other way."""

    def __lt__(self, other: float) -> bool:
        return not float(self) < other

    def __le__(self, other: float) -> bool:
        return not float(self) <= other

    def __gt__(self, other: float) -> bool:
        return not float(self) > other

    def __ge__(self, other: float) -> bool:
        return not float(self) >= other


def _turned(value: Any) -> Any:
    """A truth, a number, or a list of them, that leads to the other side of a branch."""
    if isinstance(value, list):
        return [_turned(item) for item in value]
    return _Turned(value) if isinstance(value, float) else not value if isinstance(value, bool) else value


@dataclasses.dataclass(frozen=True)
class OtherSide:
    """A forward in which one branch on data goes the other way."""

    site: str

    def __call__(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with _Sides(frozenset((self.site.rpartition(":")[0],)), self.site):
            return forward(*args, **kwargs)


def branches(small: Small) -> list[str]:
    """The places, ``file:line``, where the model's own code asks a tensor for a truth, a number or a list."""
    kinds = {type(module) for module in small.model.modules()}
    modules = (sys.modules.get(kind.__module__) for kind in kinds if not kind.__module__.startswith("torch."))
    sides = _Sides(frozenset(str(getattr(module, "__file__", "")) for module in modules))
    with torch.no_grad(), sides:
        small.model(**small.inputs)
    return list(sides.met)
