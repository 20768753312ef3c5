"""Give single modules another forward: each gets a class of the same name, which is made once."""

from __future__ import annotations

from typing import Any

import torch


_MADE: dict[tuple[type[Any], type[Any], bool], type[Any]] = {}
_INSERTED = "_inserted"


def swap_forward(module: torch.nn.Module, kind: type[Any], outermost: bool = False) -> None:
    """Give a module the forward of ``kind``, below the additions of its own class to a standard class.

    Args:
        outermost: above these additions instead.
    """
    module.__class__ = _made(type(module), kind, outermost)


def _made(old: type[Any], kind: type[Any], outermost: bool) -> type[Any]:
    """A class with another innermost or outermost forward.

    A subclass of ``nn.Linear`` that calls ``super().forward`` keeps its additions: ``kind`` goes between both classes.
    """
    if (old, kind, outermost) not in _MADE:
        standard = next((base for base in old.__mro__ if _is_standard(base)), old)
        above = outermost or old is standard
        bases = (kind, old) if above else (old, _made(standard, kind, False))
        body = {"__module__": old.__module__, "__qualname__": old.__qualname__, _INSERTED: True}
        _MADE[old, kind, outermost] = type(old.__name__, bases, body)
    return _MADE[old, kind, outermost]


def _is_standard(kind: type[Any]) -> bool:
    return kind in (torch.nn.Linear, torch.nn.Embedding) or is_conv1d(kind)


def conv1d_product(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """The product of transformers' ``Conv1D``."""
    rows = input.reshape(-1, input.shape[-1])
    found = torch.mm(rows, weight) if bias is None else torch.addmm(bias, rows, weight)
    return found.view(*input.shape[:-1], -1)


def is_conv1d(kind: type[Any]) -> bool:
    """Whether a class is transformers' ``Conv1D``, a linear layer whose weight is stored the other way round."""
    return kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers.") and _INSERTED not in vars(kind)
