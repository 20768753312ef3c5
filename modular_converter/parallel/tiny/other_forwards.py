"""Small instances with another forward around the model's own forward."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from modular_converter.parallel.errors import BuildError
from modular_converter.parallel.tiny.build import Small
from modular_converter.parallel.tiny.copies import copy_of


def arguments_of_use(small: Small) -> set[str]:
    """The names of the arguments of the model's own forward in a use that has run."""
    within: set[str] = small.model.__dict__.get("_given", set())
    return within | {name for name, value in small.inputs.items() if value is not None}


class _Names(set[str]):
    """Names that remain when a model is restored after a run: a class of this package is skipped."""


class _InUse(torch.nn.Module):
    """Put before a model's own class: its forward is a use, which calls the model's own forward."""

    _use: Callable[..., Any]
    _given: _Names

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._use(self._own, *args, **kwargs)

    def _own(self, *args: Any, **kwargs: Any) -> Any:
        self._given.update(name for name, value in kwargs.items() if value is not None)
        return super().forward(*args, **kwargs)


def within_use(small: Small, use: Callable[..., Any]) -> Small:
    """A copy of the instance with the forward ``use``, which gets the model's own forward and the arguments."""
    model = copy_of(small.model)
    own = type(model)
    body = {"__module__": own.__module__, "__qualname__": own.__qualname__}
    model.__class__ = type(own.__name__, (_InUse, own), body)
    model.__dict__.update(_use=use, _given=_Names())
    return dataclasses.replace(small, model=model)


@dataclasses.dataclass(frozen=True)
class _GivenBack:
    """A forward that returns its state, and a forward of the last token with this state."""

    ids: str
    takes: frozenset[str]

    def __call__(self, forward: Callable[..., Any], **given: Any) -> Any:
        ids = given[self.ids]
        first = forward(**{**given, self.ids: ids[:, :-1], "use_cache": True})
        fields = first.items() if isinstance(first, Mapping) else ()
        state = {n: v for n, v in fields if n in self.takes and v is not None and not isinstance(v, torch.Tensor)}
        if not state:
            raise BuildError("its forward returns no state")
        second = forward(**{**given, self.ids: ids[:, -1:], "use_cache": True, **state})
        return [found for result in (first, second) for name, found in result.items() if name not in state]


def continued(small: Small) -> Small | None:
    """The instance in a forward that returns its state and one of the last token with it; None if there is no state."""
    taken = frozenset(inspect.signature(small.model.forward).parameters)
    ids = next((name for name in ("decoder_input_ids", "input_ids") if name in small.inputs), None)
    return within_use(small, _GivenBack(ids, taken)) if ids is not None and "use_cache" in taken else None
