"""What a state dict holds, as a tree that can be stored and compared: modules with parts, tensors with shapes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from modular_converter.breaking.bounds import MOST_KEYS, TooLarge, one_text
from modular_converter.breaking.values import (
    UNKNOWN,
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
    numbered,
)


class Part(NamedTuple):
    """What a module holds under a name."""

    name: str
    """With `*` for the number of an item, and for what the text does not tell."""
    place: CodePlace
    is_certain: bool
    """Whether the default configuration has it."""
    shape: Shape | None = None
    """Of a tensor."""
    module: Node | None = None
    unknown: str = ""
    """The words of what may be a module, and is not known."""
    condition: str = ""
    """The words of what decides whether it is there, and is not known."""

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
    size: int = 0
    """The number of its entries."""

    @property
    def is_unknown(self) -> bool:
        """Whether nothing is known of what it holds."""
        return bool(self.parts) and all(one.name == UNKNOWN and one.unknown for one in self.parts)


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
            kind = "list" if isinstance(value, Items) else value.text
            if isinstance(value, ObjectValue):
                kind, place = value.cls.name, value.cls.place() if value.cls.path else place
            self._nodes[id(value)] = known = _node(kind, place, parts)
            self._kept.append(value)
        return known

    def _parts(self, value: Value, place: CodePlace) -> Iterator[Part]:
        if isinstance(value, ObjectValue):
            for key, slots in value.slots.items():
                for slot in slots:
                    yield from self._part("*" if key.isdigit() else key, slot)  # an item, of a class that is a list
        elif isinstance(value, Items):
            for key, one in value.items:
                name = key if value.is_mapping else numbered(key)
                yield from self._part(name, Slot(one, place, not (value.is_mapping and "*" in name)))
        elif isinstance(value, Layer):
            for name, (shape, present) in value.tensors.items():
                if name == UNKNOWN:
                    yield Part(name, place, False, unknown=shape.text)
                elif present is not False:
                    yield Part(numbered(name), place, present is True, shape=shape)
            for name, one in value.modules.items():
                yield from self._part(name, Slot(one, place, True))

    def _part(self, name: str, slot: Slot) -> Iterator[Part]:
        value, place, is_certain, condition = slot
        if isinstance(value, Either):
            for one in value.options:
                yield from self._part(name, Slot(one, place, False, one_text([condition, value.condition])))
        elif isinstance(value, HeldTensor):
            is_certain = is_certain and value.is_persistent is True
            yield Part(name, place, is_certain, shape=value.shape, condition=condition)
        elif isinstance(value, Expression):
            if value.may_be_module:
                yield Part(name, place, False, unknown=value.text, condition=condition)
        elif isinstance(value, (ObjectValue, Items, Layer)):
            yield Part(name, place, is_certain, module=self.node(value, place), condition=condition)


def _without_doubles(parts: Iterator[Part]) -> Iterator[Part]:
    """Parts of one name that mean the same are one: the layers of a list."""
    seen: dict[tuple[str, str], Part] = {}
    for part in parts:
        key = part.name, part.meaning
        if key not in seen or (part.is_certain and not seen[key].is_certain):
            seen[key] = part
    yield from seen.values()


def _node(kind: str, place: CodePlace, parts: tuple[Part, ...]) -> Node:
    lines = (f"{one.name}\t{one.is_certain}\t{one.meaning}\t{one.condition}" for one in parts)
    description = "\n".join(sorted(lines))
    size = sum(one.module.size if one.module is not None else 1 for one in parts)
    if size > MOST_KEYS:
        raise TooLarge
    return Node(kind, place, parts, hashlib.sha256(description.encode("utf-8", "replace")).hexdigest()[:20], size)


def unknown_node(place: CodePlace, read: Iterable[str]) -> Node:
    """A module of which nothing is known but the texts that it was read from."""
    whole = hashlib.sha256("\n".join(read).encode(errors="replace")).hexdigest()
    return _node(place.owner, place, (Part("*", place, False, unknown=f"{place.owner} {whole}"),))


def keys_of(node: Node, prefix: str = "") -> Mapping[str, Key]:
    """The entries of a state dict by name. An entry is certain if one of several ways to it is."""
    found: dict[str, Key] = {}
    _collect(node, prefix, True, found, ())
    return found


def _collect(node: Node, prefix: str, certain: bool, found: dict[str, Key], above: tuple[int, ...]) -> None:
    if id(node) in above:
        return
    for part in node.parts:
        name, is_certain = prefix + part.name, certain and part.is_certain
        if part.module is not None:
            _collect(part.module, f"{name}.", is_certain, found, (*above, id(node)))
        elif not part.unknown and (name not in found or (is_certain and not found[name].is_certain)):
            found[name] = Key(name, part, is_certain)
