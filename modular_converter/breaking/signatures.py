"""The methods whose parameters nobody is told of: those of classes that no model exports, neither by themselves nor as a base,
in the file itself or in an heir; and the heirs that say something about the body of a parent's method.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property

from modular_converter.breaking.facts import ModelFacts
from modular_converter.convert.schedule import caseless, reached
from modular_converter.convert.source.library import Library
from modular_converter.model.class_blocks import Members, class_node
from modular_converter.model.module import Role
from modular_converter.model.overriding import only_raises


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
                yield _COPIED + caseless(name)


def _mark(name: str) -> str:
    return f"class {name}"


def is_told(mark: str, followed: Collection[str]) -> bool:
    """Whether one of the classes that a mark stands for is told of."""
    if not mark.startswith(_COPIED):
        return mark in followed
    ending = mark.removeprefix(_COPIED)
    return any(one.startswith(_COPIED) and one.endswith(ending) for one in followed)


class UntoldMethods:
    """Which methods of an edited file are of classes that nobody is told of."""

    def __init__(self, followed: Collection[str], paths: Sequence[str], library: Library) -> None:
        """
        Args:
            followed: the names of all functions whose bodies a comparison follows, and marks of the classes whose methods it
                tells of; without any, everything counts as read.
            paths: all modular files.
        """
        self.followed, self._paths, self._library = followed, paths, library

    @cached_property
    def _heirs(self) -> dict[str, set[str]]:
        """Name of a class -> the classes of modular files that inherit from it, and its other names. Too many are found rather
        than too few, in blocks and by assignments: a class that is taken for an heir is told of.
        """
        found: dict[str, set[str]] = {}
        modules = filter(None, map(self._library.module_if_readable, self._paths))
        for statement in (one for module in modules for one in module.statements):
            for imported in statement.imports:
                found.setdefault(imported.name, set()).add(imported.bound)
            for name in statement.bases if statement.role is Role.CLASS else statement.uses:
                found.setdefault(name.rpartition(".")[2], set()).update(statement.names_bound)
        return found

    @cached_property
    def _classes(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Name of a class -> the modular files that define such a class, and its text in each."""
        found = defaultdict(list)
        for module in filter(None, map(self._library.module_if_readable, self._paths)):
            for one in module.statements:
                for name in one.names_bound if one.role is Role.CLASS else ():
                    found[name].append((module.path, one.text))
        return found

    def callers(self, cls: str, method: str) -> frozenset[str]:
        """The modular files whose conversion depends on the body of a method of a class: those with an heir that calls on it,
        or takes attributes away, and with the classes between.
        """
        calls = re.compile(rf"\.{re.escape(method)}\b")
        names = reached([cls], self._below) - {cls}
        texts = ((name, text) for name in names for _, text in self._classes.get(name, ()))
        asking = {name for name, text in texts if calls.search(text) or _takes_away(text)}
        between = (one for one in names if not asking.isdisjoint(reached([one], self._below))) if asking else ()
        return frozenset(path for one in between for path, _ in self._classes.get(one, ()))

    def _below(self, name: str) -> Collection[str]:
        return self._heirs.get(name, ())

    def marks(self, path: str, cls: str) -> frozenset[str]:
        """The marks of a class of a file and its heirs if none of them is told of, else none."""
        names = reached([cls], self._below)
        word, key = caseless(os.path.basename(os.path.dirname(path))), caseless(cls)
        marks = frozenset({_COPIED + (key.removeprefix(word) or key), *map(_mark, names)})
        return frozenset() if any(is_told(one, self.followed) for one in marks) else marks


def _takes_away(text: str) -> bool:
    """Whether a class takes an attribute or a method away that a parent's method may read."""
    members = Members(class_node(text))
    return any(members.removals) or any(only_raises(one.node) or any(one.deletions) for one in members.methods)
