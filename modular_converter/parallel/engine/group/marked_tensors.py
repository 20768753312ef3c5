"""Tensors with a class that looks at what is computed with them, which is put on and taken off in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


_PLAIN: dict[type[Any], type[Any]] = {}


def marked_classes(looks: type[Any], *plain: type[Any]) -> dict[type[Any], type[Any]]:
    """For each class of tensors, one of it that ``looks`` at operations: the class with this ``__torch_function__``."""
    made = {kind: type(f"{looks.__name__}Of{kind.__name__}", (looks, kind), {"__slots__": ()}) for kind in plain}
    _PLAIN.update((marked, kind) for kind, marked in made.items())
    return made


def marked_in(looks: type[Any], values: Iterable[Any]) -> Iterator[Any]:
    """The tensors among values, and in lists and tuples of them, that this class looks at."""
    for one in values:
        if isinstance(one, looks):
            yield one
        elif isinstance(one, (list, tuple)):
            yield from marked_in(looks, one)


def unmark(tensor: Any) -> None:
    """Give a tensor its plain class; nothing for one that has it."""
    tensor.__class__ = _PLAIN.get(type(tensor), type(tensor))


class unmarked:
    """A context in which tensors are plain."""

    def __init__(self, tensors: Iterable[Any]) -> None:
        self.tensors = list(tensors)

    def __enter__(self) -> None:
        self.before: list[tuple[Any, type[Any]]] = []
        for one in self.tensors:
            kind = type(one)
            if kind in _PLAIN:  # once each
                one.__class__ = _PLAIN[kind]
                self.before.append((one, kind))

    def __exit__(self, *error: object) -> None:
        for one, kind in self.before:
            if type(one) is _PLAIN[kind]:
                one.__class__ = kind
