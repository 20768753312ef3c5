"""The state of objects: the contents of all objects that can be reached from them, to be restored in place.

Copies of a model share the state of its classes, of their files, and of functions; all other state is the model's own.
"""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Any

import torch

from modular_converter.parallel.trace.contents import (
    CONSTANT,
    Handling,
    entries_back,
    handlings_of,
    is_foreign,
    is_same,
)


class State:
    """The contents of the mutable objects that can be reached from a model.

    Attributes:
        classes: of the objects and among them, without foreign ones.
        functions: among the objects; their contents belong to the shared state.
        tensors: among the objects, with weights.
        unknown: classes of objects whose contents cannot be copied.
    """

    def __init__(self, roots: Iterable[Any]) -> None:
        self.classes: dict[type, None] = {}
        self.functions: list[Any] = []
        self.tensors: list[torch.Tensor] = []
        self.unknown: dict[str, None] = {}
        self._empty: list[dict[Any, Any]] = []
        self._entries: list[tuple[dict[Any, Any], dict[Any, Any]]] = []
        self._others: list[tuple[Handling, Any, Any]] = []
        self._walk(list(roots))

    def give_back(self) -> None:
        """Restore the contents of the objects."""
        for empty in self._empty:
            if empty:
                empty.clear()
        for entries, was in self._entries:
            entries_back(entries, was)
        for kind, value, contents in self._others:
            kind.give(value, contents)

    def _walk(self, waiting: list[Any]) -> None:
        seen: set[int] = set()
        while waiting:
            value = waiting.pop()
            kind = type(value)
            if kind in CONSTANT or id(value) in seen:
                continue
            seen.add(id(value))
            if kind is dict:
                self._entries.append((value, value.copy()))
                waiting += value.keys()
                waiting += value.values()
            elif isinstance(value, torch.nn.Module):
                waiting += self._attributes(value)
            else:
                waiting += self._other(value, kind)

    def _attributes(self, module: torch.nn.Module) -> list[Any]:
        """The values in a module, without its many empty dictionaries of hooks."""
        own = module.__dict__
        self._entries.append((own, own.copy()))
        self.classes[type(module)] = None
        found = []
        for value in own.values():
            kind = type(value)
            if (kind is dict or kind is OrderedDict) and not value:
                self._empty.append(value)
            elif kind not in CONSTANT:
                found.append(value)
        return found

    def _other(self, value: Any, kind: type) -> Iterable[Any]:
        if isinstance(value, types.FunctionType):
            self.functions.append(value)
            return ()
        owner = value if isinstance(value, type) else kind
        if not is_foreign(owner):
            self.classes[owner] = None
        if isinstance(value, (type, types.ModuleType)):
            return ()
        if isinstance(value, torch.Tensor):
            self.tensors.append(value)
        if handlings_of(kind) is None:
            self.unknown[kind.__qualname__] = None
        return _contents(value, self._others)


class SharedState:
    """The contents of classes, files and functions, and of the objects that can be reached from them.

    Attributes:
        is_cut: whether there are more than ``most`` objects.
    """

    def __init__(self, holders: Collection[Any], most: int, largest: int) -> None:
        """
        Args:
            holders: classes, modules and functions; other classes and modules are not followed.
            most: the number of objects that are followed.
            largest: the number of entries above which a tensor counts as a weight of another model, and is skipped.
        """
        self._taken: list[tuple[Handling, Any, Any]] = []
        self._tensors: list[tuple[torch.Tensor, torch.Tensor]] = []
        waiting, seen, followed = list(holders), set[int](), {id(one) for one in holders}
        while waiting and len(seen) < most:
            value = waiting.pop()
            kind = type(value)
            if kind in CONSTANT or id(value) in seen or isinstance(value, torch.nn.Module):
                continue
            seen.add(id(value))
            if isinstance(value, (type, types.ModuleType)) and id(value) not in followed:
                continue
            waiting += _contents(value, self._taken)
            if isinstance(value, torch.Tensor) and value.numel() <= largest:
                self._tensors.append((value, value.detach().clone()))
        self.is_cut = bool(waiting)

    def give_back(self) -> bool:
        """Restore the contents of the objects. Returns whether any had changed."""
        changed = [one for one in self._taken if not is_same(one[0].take(one[1]), one[2])]
        for kind, value, contents in changed:
            kind.give(value, contents)
        moved = [(tensor, was) for tensor, was in self._tensors if not torch.equal(tensor, was)]
        with torch.no_grad():
            for tensor, was in moved:
                tensor.copy_(was)
        return bool(changed or moved)


def _contents(value: Any, taken: list[tuple[Handling, Any, Any]]) -> list[Any]:
    """The values in an object, whose contents are added to ``taken``."""
    found: list[Any] = []
    own: Any = type(value)
    for kind in handlings_of(own) or ():
        contents = kind.take(value)
        taken.append((kind, value, contents))
        found += kind.parts(value, contents)
    return found
