"""The facts of a model as values that JSON knows, and back. Equal records are written once, and paths relative to a folder:
the facts are those of the same texts anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from modular_converter.breaking.facts import (
    FileFacts,
    MethodParameter,
    ModelFacts,
    PublicClass,
    Renaming,
    Signature,
    Written,
)
from modular_converter.breaking.states import Node, Part
from modular_converter.breaking.values import CodePlace, Shape


_RECORDS: dict[str, type[Any]] = {
    one.__name__: one
    for one in (
        CodePlace, FileFacts, MethodParameter, ModelFacts, Node, Part, PublicClass, Renaming, Shape, Signature, Written
    )
}  # fmt: skip
_LEFT_OUT = frozenset({"ancestors", "reads"})
"""Fields that say where facts come from."""
_BELOW, _SET, _SEQUENCE = "\0", "{", "("
"""The beginning of a path, which no text of Python has; the first items of what JSON has only lists for."""


def values_of_facts(facts: ModelFacts, top: str) -> list[list[Any]]:
    """The facts of a model, but for the files that they were read from.

    Args:
        top: the folder that paths are relative to.
    """
    packer = _Packer(os.path.join(top, ""))
    packer.value(facts)
    return packer.records


class _Packer:
    def __init__(self, start: str) -> None:
        self._start = start
        self._numbers: dict[object, int] = {}
        """A record, or the identity of one that is not a tuple -> its number."""
        self.records: list[list[Any]] = []
        """Each behind those that it holds, as the name of its class and its fields."""

    def value(self, value: Any) -> Any:
        kind = type(value).__name__
        if kind in _RECORDS:
            key = (kind, value) if isinstance(value, tuple) else id(value)
            if key not in self._numbers:
                names = getattr(value, "_fields", None) or value.__dataclass_fields__
                fields = [self.value(getattr(value, name)) for name in names if name not in _LEFT_OUT]
                self._numbers[key] = len(self.records)
                self.records.append([kind, *fields])
            return [self._numbers[key]]
        if isinstance(value, Mapping):
            return {key: self.value(one) for key, one in value.items()}
        if isinstance(value, frozenset):
            return [_SET, *sorted(value)]
        if isinstance(value, (tuple, list)):
            return [_SEQUENCE, *map(self.value, value)]
        if isinstance(value, str) and value.startswith(self._start):
            return _BELOW + value.removeprefix(self._start)
        return value


def facts_of_values(records: list[list[Any]], top: str) -> ModelFacts:
    """The inverse of `values_of_facts`. Raises `ValueError`, `TypeError`, `LookupError` or `AttributeError` for other values."""
    made: list[Any] = []

    def value(packed: Any) -> Any:
        if isinstance(packed, dict):
            return {key: value(one) for key, one in packed.items()}
        if isinstance(packed, list):
            first, *rest = packed
            if isinstance(first, int):
                return made[first]
            return frozenset(rest) if first == _SET else tuple(map(value, rest))
        return os.path.join(top, packed[1:]) if isinstance(packed, str) and packed.startswith(_BELOW) else packed

    for kind, *fields in records:
        reads: dict[str, Any] = {"reads": {}} if kind == ModelFacts.__name__ else {}
        made.append(_RECORDS[kind](*map(value, fields), **reads))
    facts = made[-1]
    if not isinstance(facts, ModelFacts):
        raise TypeError(facts)
    return facts
