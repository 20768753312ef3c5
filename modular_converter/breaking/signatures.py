"""The methods whose parameters nobody is told of: those of classes that no model exports, neither by themselves nor as a base,
in the file itself or in an heir; and the heirs that say something about the body of a parent's method.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

from modular_converter.breaking.facts import ModelFacts
from modular_converter.convert.schedule import caseless, reached, words_in_code
from modular_converter.convert.source.library import Library
from modular_converter.model.class_blocks import Members, class_node
from modular_converter.model.lexer import code_only
from modular_converter.model.module import Role, Statement
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
        self._heirs: dict[str, set[str]] = {}

    @cached_property
    def _words(self) -> Sequence[tuple[str, Collection[str]]]:
        """The modular files with the words of each. Those that do not say a name know no heir of a class of that name, and are
        not indexed: most, after an edit of one class.
        """
        texts = ((path, self._library.text_if_readable(path)) for path in self._paths)
        return [(path, words_in_code(text)) for path, text in texts if text]

    def _statements(self, name: str) -> Iterator[tuple[str, Statement]]:
        """The statements of the modular files that say a name."""
        for module in (self._library.module_if_readable(path) for path, words in self._words if name in words):
            yield from ((module.path, one) for one in module.statements) if module else ()

    def _texts(self, cls: str) -> Iterator[tuple[str, str]]:
        """The modular files that define a class of this name, and its text in each."""
        for path, one in self._statements(cls):
            if one.role is Role.CLASS and cls in one.names_bound:
                yield path, one.text

    def callers(self, cls: str, method: str, words: Collection[str]) -> frozenset[str]:
        """The modular files whose conversion depends on the body of a method of a class: those with an heir that calls on it,
        or takes attributes away that it says, and with the classes between.

        Args:
            words: those of the body before and after an edit.
        """
        calls = re.compile(rf"\.{re.escape(method)}\b")
        names = reached([cls], self._below) - {cls}
        texts = ((name, text) for name in names for _, text in self._texts(name))
        asking = {
            name for name, text in texts if calls.search(code_only(text)) or not _taken_away(text).isdisjoint(words)
        }
        between = (one for one in names if not asking.isdisjoint(reached([one], self._below))) if asking else ()
        return frozenset(path for one in between for path, _ in self._texts(one))

    def _below(self, name: str) -> Collection[str]:
        """The classes of modular files that inherit from a class, and its other names. Too many are found rather than too few,
        in blocks and by assignments: a class that is taken for an heir is told of.
        """
        if name not in self._heirs:
            found = self._heirs[name] = set()
            for _, one in self._statements(name):
                found.update(imported.bound for imported in one.imports if imported.name == name)
                read = one.bases if one.role is Role.CLASS else one.uses
                if any(base.rpartition(".")[2] == name for base in read):
                    found |= one.names_bound
        return self._heirs[name]

    def marks(self, path: str, cls: str) -> frozenset[str]:
        """The marks of a class of a file and its heirs if none of them is told of, else none."""
        names = reached([cls], self._below)
        word, key = caseless(os.path.basename(os.path.dirname(path))), caseless(cls)
        marks = frozenset({_COPIED + (key.removeprefix(word) or key), *map(_mark, names)})
        return frozenset() if any(is_told(one, self.followed) for one in marks) else marks


def _taken_away(text: str) -> set[str]:
    """The attributes and methods that a class takes away, which a parent's method may read."""
    members = Members(class_node(text))
    deleted = {one.attr for method in members.methods for one in method.deletions}
    return deleted.union(
        (one.id for one in members.removals), (one.name for one in members.methods if only_raises(one.node))
    )
