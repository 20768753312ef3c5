"""Among the arguments and results of calls: caches of keys, values and states, and objects that a call may change."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.ranks.packing import OnRanks
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


@dataclass(frozen=True)
class ModelThere:
    """The stand-in for another model on the same ranks among arguments, such as the assistant of `generate`."""

    number: int


class StreamHere:
    """The stand-in for the caller's streamer among arguments."""


_HERE = (ModelThere, StreamHere, OnRanks)


def objects_in(value: Any) -> list[Any]:
    """The objects in nested arguments that code may change in a call: generators, logits processors and criteria that count."""
    found = (getattr(one, "__self__", one) for one in leaves_in(value))
    return [one for one in found if isinstance(one, torch.Generator) or _is_own(one)]


def _is_own(one: Any) -> bool:
    kept = isinstance(one, (type, torch.Tensor, *_HERE)) or is_cache(one) or hasattr(one, "to_dict")
    return not kept and hasattr(one, "__dict__") and type(one).__module__ != "builtins"


class Changes:
    """Where a call runs, which objects among its arguments it changes."""

    def __init__(self, arguments: Any, held: Iterable[Any] = ()) -> None:
        found = objects_in(arguments)
        here = {id(one) for one in held} if found else set()  # of which the caller has handles
        self.objects = [one for one in found if id(one) not in here]
        self.before = [_state(one) for one in self.objects]

    def now(self) -> dict[int, Any]:
        """The number of each that is another one than before, and its attributes, or the state of a generator."""
        pairs = enumerate(zip(self.objects, self.before))
        return {number: _parts(one) for number, (one, before) in pairs if _state(one) != before}


def _parts(one: Any) -> Any:
    return one.get_state().numpy().tobytes() if isinstance(one, torch.Generator) else vars(one)


def _state(one: Any) -> bytes | None:
    try:
        return pickle.dumps(_parts(one))
    except Exception:  # of an object that only this process can have
        return None


def take_changes(objects: list[Any], changes: Mapping[int, Any]) -> None:
    """Give the caller's objects what a call has set on copies in another process."""
    for number, state in changes.items():
        if isinstance(state, bytes):
            objects[number].set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
        else:
            vars(objects[number]).clear()
            vars(objects[number]).update(state)
