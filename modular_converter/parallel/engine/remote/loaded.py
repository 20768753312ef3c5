"""A model on a rank, and its state between calls."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from modular_converter.parallel.engine.base.skeleton import Skeleton, assemble_model
from modular_converter.parallel.engine.base.without_data import META, run_without_data, tried_without_data
from modular_converter.parallel.engine.remote.same_answers import Whole, whole_of
from modular_converter.parallel.plans.resolve import Piece, Resolution


@dataclass
class Loaded:
    """A model on this rank.

    Attributes:
        held: number -> object that stays here between calls, such as a cache.
        local: identities of the modules that compute a share of their heads.
        copies: (object in the settings, copy with a share's own numbers that a module has instead).
        seen: kind of call whose results were compared with the whole model's shapes -> names of fields that stay here.
        trial: whether answers that differ between the ranks are an ordinary error, after which the ranks go on.
    """

    model: torch.nn.Module
    skeleton: Skeleton
    shares: dict[int, torch.Tensor]
    pieces: dict[int, Piece]
    resolution: Resolution | None = None
    held: dict[int, Any] = field(default_factory=dict)
    compiled: bool = False
    local: set[int] = field(default_factory=set)
    copies: list[tuple[Any, Any]] = field(default_factory=list)
    seen: dict[Any, frozenset[str]] = field(default_factory=dict)
    trial: bool = False

    def kind_of(self, args: Any, kwargs: Any, tensors: Iterable[Any]) -> Any:
        """The names of the given arguments and of the returned tensors, on which the form of a result depends."""
        given = tuple(sorted((name, value is True) for name, value in kwargs.items() if value is not None))
        return tuple(map(type, args)), given, tuple(tensors)

    def whole_shapes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Whole:
        """The shapes and integers of the whole model's result, from a run without data; empty if that run fails."""
        if not _has_values_alone((args, kwargs)):  # the run would write to a cache
            return {}
        model, _ = assemble_model(self.skeleton, META)
        try:
            result = tried_without_data(lambda: run_without_data(model.eval(), args, kwargs))
        except Exception:  # the model's own code needs data
            return {}
        return whole_of(result)


def _has_values_alone(value: Any) -> bool:
    if isinstance(value, (list, tuple, dict)):
        return all(map(_has_values_alone, value.values() if isinstance(value, dict) else value))
    return value is None or isinstance(value, (torch.Tensor, bool, int, float, str, torch.dtype))


def fill_whole(model: torch.nn.Module, loaded: Loaded, numbers: dict[int, int]) -> None:
    """Give whole parameters their data; tied parameters stay tied."""
    made: dict[int, torch.nn.Parameter] = {}
    for module in model.modules():
        for leaf, old in module._parameters.items():
            if old is not None and old.is_meta:
                index = numbers[id(old)]
                made.setdefault(index, torch.nn.Parameter(loaded.shares[index], requires_grad=False))
                module._parameters[leaf] = made[index]
