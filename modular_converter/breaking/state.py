"""What a model's state dict holds, as a tree that can be stored and compared: modules with slots, tensors with shapes."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from modular_converter.breaking.values import (
    CodePlace,
    Either,
    Expression,
    HeldTensor,
    Items,
    Layer,
    ObjectValue,
    Shape,
    Slot,
    Value,
)


_NUMBER = re.compile(r"\d+")


class Part(NamedTuple):
    """What a module holds under a name."""

    name: str
    """With `*` for each number."""
    place: CodePlace
    is_certain: bool
    """Whether the default configuration has it."""
    shape: Shape | None = None
    """Of a tensor."""
    module: Node | None = None
    unknown: str = ""
    """The words of what may be a module, and is not known."""

    @property
    def meaning(self) -> str:
        """What two parts must share to be the same."""
        return (
            self.module.digest
            if self.module is not None
            else (self.shape.text if self.shape is not None else self.unknown)
        )


@dataclass(frozen=True, eq=False)
class Node:
    """A module."""

    kind: str
    """Its class."""
    place: CodePlace
    """Where its class is written, or the list that it is."""
    parts: tuple[Part, ...]
    digest: str = field(default="")
    """Equal for modules with the same names and shapes, wherever they are written."""


class Key(NamedTuple):
    """An entry of a state dict."""

    name: str
    part: Part
    is_certain: bool


class StateReader:
    """Makes trees of the modules of one tree of sources; equal objects become one node."""

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}
        self._kept: list[Value] = []

    def node(self, value: Value, place: CodePlace) -> Node:
        """The tree of a module. `place` is that of its parts that have none, such as the items of a list."""
        known = self._nodes.get(id(value))
        if known is None:
            self._nodes[id(value)] = _node(value.text, place, ())  # for modules that hold each other
            parts = tuple(_without_doubles(self._parts(value, place)))
            if isinstance(value, ObjectValue) and value.cls.path:
                place = CodePlace(value.cls.path, value.cls.line, value.cls.name)
            kind = (
                value.cls.name
                if isinstance(value, ObjectValue)
                else "list"
                if isinstance(value, Items)
                else value.text
            )
            self._nodes[id(value)] = known = _node(kind, place, parts)
            self._kept.append(value)
        return known

    def _parts(self, value: Value, place: CodePlace) -> Iterator[Part]:
        if isinstance(value, ObjectValue):
            for name, slots in value.slots.items():
                for slot in slots:
                    yield from self._part(name, slot)
        elif isinstance(value, Items):
            for name, one in value.items:
                yield from self._part(name, Slot(one, place, not (value.is_mapping and "*" in name)))
        elif isinstance(value, Layer):
            for name, (shape, present) in value.tensors.items():
                if present is not False:
                    yield Part(_NUMBER.sub("*", name), place, present is True, shape=shape)

    def _part(self, name: str, slot: Slot) -> Iterator[Part]:
        value, name = slot.value, _NUMBER.sub("*", name)
        if isinstance(value, Either):
            for one in value.options:
                yield from self._part(name, Slot(one, slot.place, False))
        elif isinstance(value, HeldTensor):
            yield Part(name, slot.place, slot.is_certain and value.is_persistent is True, shape=value.shape)
        elif isinstance(value, Expression):
            if value.may_be_module:
                yield Part(name, slot.place, False, unknown=value.text)
        elif isinstance(value, (ObjectValue, Items, Layer)):
            yield Part(name, slot.place, slot.is_certain, module=self.node(value, slot.place))


def _without_doubles(parts: Iterator[Part]) -> Iterator[Part]:
    """Parts of one name that mean the same are one: the layers of a list."""
    seen: dict[tuple[str, str], Part] = {}
    for part in parts:
        key = part.name, part.meaning
        if key not in seen or (part.is_certain and not seen[key].is_certain):
            seen[key] = part
    yield from seen.values()


def _node(kind: str, place: CodePlace, parts: tuple[Part, ...]) -> Node:
    description = "\n".join(sorted(f"{one.name}\t{one.is_certain}\t{one.meaning}" for one in parts))
    return Node(kind, place, parts, hashlib.sha256(description.encode("utf-8", "replace")).hexdigest()[:20])


def keys_of(node: Node, prefix: str = "", certain: bool = True) -> Mapping[str, Key]:
    """The entries of a state dict by name. An entry is certain if one of several ways to it is."""
    found: dict[str, Key] = {}
    _collect(node, prefix, certain, found, ())
    return found


def unknown_parts(node: Node, prefix: str = "", above: tuple[int, ...] = ()) -> Iterator[str]:
    """The beginnings of the entries that a part may have which is not known."""
    if id(node) in above:
        return
    for part in node.parts:
        if part.unknown:
            yield prefix + part.name
        elif part.module is not None:
            yield from unknown_parts(part.module, f"{prefix}{part.name}.", (*above, id(node)))


def _collect(node: Node, prefix: str, certain: bool, found: dict[str, Key], above: tuple[int, ...]) -> None:
    if id(node) in above:
        return
    for part in node.parts:
        name, is_certain = prefix + part.name, certain and part.is_certain
        if part.module is not None:
            _collect(part.module, f"{name}.", is_certain, found, (*above, id(node)))
        elif not part.unknown and (name not in found or (is_certain and not found[name].is_certain)):
            found[name] = Key(name, part, is_certain)
