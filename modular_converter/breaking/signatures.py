"""The methods whose parameters nobody is told of: those of classes that no model exports, neither by themselves nor as a base,
in the file itself or in an heir.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

from modular_converter.breaking.facts import ModelFacts
from modular_converter.convert.schedule import reached
from modular_converter.files.read import text_of_content
from modular_converter.findings import ConversionError
from modular_converter.git.work_tree import MOST_BYTES
from modular_converter.settings.disk import read_regular


# Too many are found rather than too few: a class that is taken for an heir is told of.
_CLASS = re.compile(r"^[ \t]*class (\w+)\(([^)]*)\)", re.MULTILINE)
_BASE = re.compile(r"\w+(?=\s*(?:,|\[|$))")
_ALIAS = re.compile(r"\b(\w+) as (\w+)")
_ASSIGNED = re.compile(r"^[ \t]*(\w+)[ \t]*=[ \t]*(?:\w+\.)*(\w+)[ \t]*(?:#.*)?$", re.MULTILINE)


_COPIED = "copied as "


def told_classes(facts: ModelFacts, *, is_heir: bool) -> Iterator[str]:
    """Marks of the classes whose public methods are told of as those of a model.

    Args:
        is_heir: whether it has a modular file, so that classes of it may be copies.
    """
    for one in (one for file in facts.files.values() for one in file.classes.values()):
        for name in (one.name, *one.bases):
            yield _mark(name)
            if is_heir:
                yield _COPIED + _key(name)


def _mark(name: str) -> str:
    return f"class {name}"


def _key(name: str) -> str:
    return name.replace("_", "").lower()


def is_told(mark: str, followed: Collection[str]) -> bool:
    """Whether one of the classes that a mark stands for is told of."""
    if not mark.startswith(_COPIED):
        return mark in followed
    ending = mark.removeprefix(_COPIED)
    return any(one.startswith(_COPIED) and one.endswith(ending) for one in followed)


class UntoldMethods:
    """Which methods of an edited file are of classes that nobody is told of."""

    def __init__(self, followed: Collection[str], paths: Sequence[str]) -> None:
        """
        Args:
            followed: the marks of classes that are told of, among others.
            paths: all modular files.
        """
        self._followed, self._paths = followed, paths

    @cached_property
    def _heirs(self) -> dict[str, set[str]]:
        """Name of a class -> the classes of modular files that inherit from it, and its other names."""
        found: dict[str, set[str]] = {}
        for path in self._paths:
            with contextlib.suppress(OSError, ConversionError):
                text = text_of_content(path, read_regular(path, MOST_BYTES))
                pairs = [(base, name) for name, bases in _CLASS.findall(text) for base in _BASE.findall(bases)]
                assigned = [(value, name) for name, value in _ASSIGNED.findall(text)]
                for name, other in (*pairs, *_ALIAS.findall(text), *assigned):
                    found.setdefault(name, set()).add(other)
        return found

    def marks(self, path: str, cls: str) -> frozenset[str]:
        """The marks of a class of a file and its heirs if none of them is told of, else none."""
        names = reached([cls], lambda one: self._heirs.get(one, ()))
        word, key = _key(os.path.basename(os.path.dirname(path))), _key(cls)
        marks = frozenset({_COPIED + (key.removeprefix(word) or key), *map(_mark, names)})
        return frozenset() if any(is_told(one, self._followed) for one in marks) else marks
