"""What a call stores on modules of the ranks: it comes back, tensors when they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.engine.base.watched_state import is_plain
from modular_converter.parallel.engine.base.weights_there import stored_there
from modular_converter.parallel.errors import ApplyError


@dataclass(frozen=True)
class StoredTensor:
    """A tensor on a module of the ranks.

    Attributes:
        keys: lead from the attribute to the tensor.
        call: number of the call that has stored it.
    """

    path: str
    name: str
    keys: tuple[Any, ...]
    call: int

    @property
    def where(self) -> str:
        keys = "".join(f"[{key!r}]" for key in self.keys)
        return f"{self.path}.{self.name}{keys}" if self.path else f"{self.name}{keys}"


@dataclass(frozen=True)
class Stays:
    """An object that cannot come back."""

    where: str
    kind: str


class OnlyThere:
    """Stands in the caller's model for an object that the ranks keep."""

    def __init__(self, stays: Stays) -> None:
        self.__dict__["_stays"] = stays

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _cannot(self.__dict__["_stays"])

    def __getitem__(self, key: Any) -> Any:
        raise _cannot(self.__dict__["_stays"])

    def __len__(self) -> int:
        raise _cannot(self.__dict__["_stays"])

    def __repr__(self) -> str:
        return f"<{self.__dict__['_stays'].kind} on the ranks>"


def _cannot(stays: Stays) -> ApplyError:
    return ApplyError(
        f"{stays.where} was stored by a call on the ranks, and a {stays.kind} that forward stores does not come back: let "
        "forward return it"
    )


def with_marks(value: Any, stored: StoredTensor) -> Any:
    """A value with a mark for each tensor, and for each object that cannot travel."""
    if isinstance(value, torch.Tensor):
        return stored
    if is_plain(value):
        return value
    if type(value) in (list, tuple):
        return type(value)(with_marks(item, _below(stored, n)) for n, item in enumerate(value))
    if type(value) is dict and all(map(is_plain, value)):
        return {key: with_marks(item, _below(stored, key)) for key, item in value.items()}
    return Stays(stored.where, type(value).__name__)


def _below(stored: StoredTensor, key: Any) -> StoredTensor:
    return StoredTensor(stored.path, stored.name, (*stored.keys, key), stored.call)


def without_marks(value: Any, fetch: Callable[[StoredTensor], torch.Tensor]) -> Any:
    """The caller's value for one with marks: tensors that are fetched when they are read."""
    if isinstance(value, StoredTensor):
        return stored_there(value.where, lambda: fetch(value))
    if isinstance(value, Stays):
        return OnlyThere(value)
    if type(value) in (list, tuple):
        return type(value)(without_marks(item, fetch) for item in value)
    if type(value) is dict:
        return {key: without_marks(item, fetch) for key, item in value.items()}
    return value
