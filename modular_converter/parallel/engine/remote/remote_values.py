"""Values that stay in their process: caches on the ranks, streamers in the main process, tensors until they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from modular_converter.parallel.engine.base.call_state import ModelThere, StreamHere, caches_in, is_cache
from modular_converter.parallel.engine.base.weights_there import stored_there
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.modules import is_plain
from modular_converter.parallel.trace.record import leaves_in


_PLAIN = (bool, int, float, str, torch.dtype, torch.device)


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


class OnlyThere:
    """Stands in the caller's model for an object that the ranks keep."""

    def __init__(self, where: str, kind: str) -> None:
        self.__dict__.update(_where=where, _kind=kind)

    def _refused(self, *args: Any) -> Any:
        raise ApplyError(
            f"{self._where} was stored by a call on the ranks, and a {self._kind} that forward stores does not come back: let "
            "forward return it"
        )

    __getitem__ = __len__ = _refused

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refused()

    def __repr__(self) -> str:
        return f"<{self._kind} on the ranks>"


def with_marks(value: Any, stored: StoredTensor) -> Any:
    """A value with a mark for each tensor, and for each object that cannot travel."""
    if isinstance(value, torch.Tensor):
        return stored
    if is_plain(value):
        return value
    if type(value) in (list, tuple):
        return type(value)(with_marks(item, replace(stored, keys=(*stored.keys, n))) for n, item in enumerate(value))
    if type(value) is dict and all(map(is_plain, value)):
        return {key: with_marks(item, replace(stored, keys=(*stored.keys, key))) for key, item in value.items()}
    return OnlyThere(stored.where, type(value).__name__)


def without_marks(value: Any, fetch: Callable[[StoredTensor], torch.Tensor]) -> Any:
    """The caller's value for one with marks: tensors that are fetched when they are read."""
    if isinstance(value, StoredTensor):
        return stored_there(value.where, lambda: fetch(value))
    if type(value) in (list, tuple):
        return type(value)(without_marks(item, fetch) for item in value)
    if type(value) is dict:
        return {key: without_marks(item, fetch) for key, item in value.items()}
    return value


def hold(result: Any, number: int, held: Mapping[int, Any]) -> dict[int, Any]:
    """Number -> cache in a result; the caches stay on the ranks, with the same numbers on each rank.

    Args:
        number: of the first new cache.
        held: number -> object that is on the ranks already.
    """
    known = {id(value): key for key, value in held.items()}
    return {known.get(id(value), number + n): value for n, value in enumerate(caches_in(result))}


def check_plain(value: Any, source: str) -> None:
    """Raise ``ApplyError`` if a result of a held object contains a rank's own states, or objects that may hold them."""
    for one in leaves_in(value):
        if isinstance(one, torch.Tensor):
            if one.dim() > 1:
                raise ApplyError(f"{source} holds each rank's own share; it cannot be read from the main process")
        elif not (one is None or isinstance(one, _PLAIN) or is_cache(one)):
            raise ApplyError(f"{source} is on the ranks; it cannot be read from the main process")


class _Stream:
    """A streamer on a rank, which sends each token to the caller's streamer."""

    def __init__(self, event: Callable[[str, Any], None]) -> None:
        self.event = event

    def put(self, value: Any) -> None:
        self.event("put", value)

    def end(self) -> None:
        self.event("end", None)

    def __deepcopy__(self, memo: object) -> None:
        raise TypeError("its tokens would reach the caller; a copy would close the caller's pipe when it is dropped")


def as_on_rank(
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    event: Callable[[str, Any], None],
    model: Callable[[int], torch.nn.Module],
) -> Any:
    """The arguments on a rank: stand-ins become a streamer that sends events, and the model on this rank."""

    def swapped(value: Any) -> Any:
        if isinstance(value, ModelThere):
            return model(value.number)
        return _Stream(event) if isinstance(value, StreamHere) else value

    return tuple(map(swapped, args)), {key: swapped(value) for key, value in kwargs.items()}


def with_stream(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, Callable[[str, Any], None] | None]:
    """Arguments with a stand-in for the streamer, and a function that passes the first rank's events to it, or None."""
    found: list[Any] = []

    def swapped(value: Any) -> Any:
        if not (hasattr(type(value), "put") and hasattr(type(value), "end")):
            return value
        found.append(value)
        return StreamHere()

    args, kwargs = tuple(map(swapped, args)), {key: swapped(value) for key, value in kwargs.items()}
    if not found:
        return args, kwargs, None

    def event(kind: str, value: Any) -> None:
        found[0].put(value) if kind == "put" else found[0].end()

    return args, kwargs, event
