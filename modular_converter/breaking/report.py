"""Changes as findings: those of one cause are one, with the models and entries that it reaches. A cause is the line of the
modular file, or of the neighbour that a model takes the line from.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from modular_converter.breaking.compare import ModelChange
from modular_converter.breaking.values import CodePlace
from modular_converter.check.cache.answers import KeptAnswers
from modular_converter.check.cache.store import digest
from modular_converter.convert.schedule import required_files
from modular_converter.convert.silence import is_silenced, without_silenced
from modular_converter.convert.source.library import Library
from modular_converter.findings import Finding, Location, Severity, first_of
from modular_converter.model.module import Module, Role, Statement
from modular_converter.reporting.display import count
from modular_converter.rules import by_code
from modular_converter.settings.values import modular_of


MOST_STEPS = 20
"""Neighbours of neighbours that are followed."""
LEAST_SUFFIX = 3
"""Characters that names of one class in two models share at their end."""


class Causes:
    """Follows changes of generated files to the lines that people write.

    A line of a class is the modular file's own if the class there says its name; else the class has it from its parent.
    A class that the modular file does not define is a copy of a neighbour's. A neighbour is only the cause if it has
    the same change.
    """

    def __init__(self, library: Library, changes: Iterable[ModelChange]) -> None:
        self._library = library
        self._changed = {(one.place.path, one.place.owner, one.rule, one.message): one for one in changes}

    def of(self, change: ModelChange) -> CodePlace:
        """The line that causes a change."""
        place = change.place
        for _ in range(MOST_STEPS):
            modular = modular_of(place.path, self._library.settings)
            module = self._library.module_if_readable(modular)
            if module is None:
                return place
            line, is_named = _line_of(change.word, module.definitions.get(place.owner or "__all__"))
            source = None if is_named else self._source(module, modular, place, change)
            if source is None:
                return CodePlace(modular, line, place.owner)
            place = source.place
        return place

    def _source(self, module: Module, modular: str, place: CodePlace, change: ModelChange) -> ModelChange | None:
        """The same change in the neighbour that the class is taken from."""
        statement = module.definitions.get(place.owner)
        if statement is not None and statement.role is Role.CLASS:
            wanted = self._bases(statement, modular)
        else:
            wanted = self._copied(modular, place.owner)
        for path, name in wanted:
            found = self._changed.get((path, name, change.rule, change.message))
            if found is not None:
                return found
        return None

    def _bases(self, statement: Statement, modular: str) -> Sequence[tuple[str, str]]:
        found = (self._library.resolver.name_in(modular, base) for base in statement.bases)
        return [(one.path, one.name) for one in found if one is not None and one.name is not None]

    def _copied(self, modular: str, owner: str) -> Sequence[tuple[str, str]]:
        """The classes of neighbours that a class may be a copy of, those with the longest common end of the name first."""
        found = []
        for path in sorted(required_files(modular, self._library)):
            neighbour = self._library.module_if_readable(path)
            for name in neighbour.classes if neighbour is not None else ():
                shared = len(os.path.commonprefix([name[::-1], owner[::-1]]))
                if shared >= LEAST_SUFFIX:
                    found.append((-shared, path, name))
        return [(path, name) for _, path, name in sorted(found)]


def _line_of(word: str, statement: Statement | None) -> tuple[int, bool]:
    """The line of a class of the modular file, or of `__all__` for a change of no class, that names what has changed, else its
    first one; and whether it names it.
    """
    if statement is None:
        return 1, False
    found = re.search(rf"\b{re.escape(word)}\b", statement.text)
    return statement.line + (statement.text.count("\n", 0, found.start()) if found else 0), found is not None


NAMED = 6
"""Models, and entries of state dicts, that a message names."""


class CauseGroup(NamedTuple):
    """The changes of one cause and kind."""

    cause: CodePlace
    rule: str
    message: str
    changes: tuple[ModelChange, ...]

    @property
    def models(self) -> list[str]:
        """The models that it reaches, sorted."""
        return sorted({one.model for one in self.changes})

    @property
    def keys(self) -> int:
        """The entries of state dicts that it changes, in all models."""
        return sum(len(one.keys) for one in self.changes)


def groups(changes: Sequence[ModelChange], library: Library, answers: KeptAnswers) -> list[CauseGroup]:
    """The changes by cause, those that reach the most models first. `answers` keep the causes of the last changes."""

    def causes_in(library: Library) -> list[CodePlace]:
        causes = Causes(library, changes)
        return [causes.of(one) for one in changes]

    found: dict[tuple[CodePlace, str, str], list[ModelChange]] = {}
    places = answers.get("causes", library, causes_in, about=digest(repr(changes).encode("utf-8", "surrogatepass")))
    for one, place in zip(changes, places):
        found.setdefault((CodePlace(*place), one.rule, one.message), []).append(one)
    made = [CauseGroup(*key, tuple(members)) for key, members in found.items()]
    return sorted(made, key=lambda one: (by_code(one.rule).code, -len(one.models), one.cause, one.message))


def findings_of(found: Sequence[CauseGroup], library: Library) -> list[Finding]:
    """The findings that the settings and comments leave, with their severity."""
    settings = library.settings
    texts: dict[str, str] = {}
    left = []
    for group in found:
        path = group.cause.path
        if path not in texts:
            texts[path] = library.text_if_readable(path) or ""
        finding = _finding(group).with_source(texts[path])
        if is_silenced(finding, path, settings) or finding not in without_silenced([finding], path, texts[path]):
            continue
        left.append(finding.with_severity(Severity.ERROR) if settings.strict else finding)
    return left


def _finding(group: CauseGroup) -> Finding:
    rule, models = by_code(group.rule), group.models
    reached = f"{count(len(models), 'model')} ({first_of(models, NAMED)})"
    keys = f", {count(group.keys, 'key')}" if group.keys else ""
    owner = f" in `{group.cause.owner}`" if group.cause.owner else ""
    entries = list(dict.fromkeys(key for one in group.changes for key in one.keys))
    related = dict.fromkeys(Location(one.place.path, one.place.line) for one in group.changes)
    return rule.finding(
        Location(group.cause.path, group.cause.line),
        f"{group.message}{owner}: {reached}{keys}",
        help=f"Keys: {first_of(entries, NAMED)}." if entries else "",
        related=tuple(one for one in related if one.path != group.cause.path),
    )
