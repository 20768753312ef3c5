"""The line that causes a change: that of the modular file, or of the neighbour that a model takes the line from."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from modular_converter.breaking.changes import ModelChange
from modular_converter.breaking.values import CodePlace
from modular_converter.convert.source.library import Library
from modular_converter.findings import ConversionError
from modular_converter.model.module import Module, Role, Statement
from modular_converter.settings.layout import modular_of


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
            module = self._module(modular)
            if module is None:
                return place
            own = self._own_line(module, modular, place, change)
            source = (
                None
                if own is not None and self._says(module, place.owner, change.word)
                else self._source(module, modular, place, change)
            )
            if source is None:
                return own or CodePlace(modular, 1, place.owner)
            place = source.place
        return place

    def _module(self, path: str) -> Module | None:
        try:
            return self._library.module(path) if path and self._library.exists(path) else None
        except ConversionError:
            return None

    def _says(self, module: Module, owner: str, word: str) -> bool:
        """Whether the class of the modular file, or the file for a change of no class, names what has changed."""
        statement = module.definitions.get(owner or "__all__")
        return statement is not None and re.search(rf"\b{re.escape(word)}\b", statement.text) is not None

    def _own_line(self, module: Module, path: str, place: CodePlace, change: ModelChange) -> CodePlace | None:
        statement = module.definitions.get(place.owner or "__all__")
        if statement is None:
            return None
        lines = statement.text.split("\n")
        pattern = re.compile(rf"\b{re.escape(change.word)}\b")
        first = next((number for number, line in enumerate(lines) if pattern.search(line)), 0)
        return CodePlace(path, statement.line + first, place.owner)

    def _source(self, module: Module, modular: str, place: CodePlace, change: ModelChange) -> ModelChange | None:
        """The same change in the neighbour that the class is taken from."""
        statement = module.definitions.get(place.owner)
        if statement is not None and statement.role is Role.CLASS:
            wanted = self._bases(statement, modular)
        else:
            wanted = self._copied(module, modular, place.owner)
        for path, name in wanted:
            found = self._changed.get((path, name, change.rule, change.message))
            if found is not None:
                return found
        return None

    def _bases(self, statement: Statement, modular: str) -> Sequence[tuple[str, str]]:
        found = (self._library.resolver.name_in(modular, base) for base in statement.bases)
        return [(one.path, one.name) for one in found if one is not None and one.name is not None]

    def _copied(self, module: Module, modular: str, owner: str) -> Sequence[tuple[str, str]]:
        """The classes of neighbours that a class may be a copy of, those with the longest common end of the name first."""
        folder = os.path.dirname(modular)
        paths = {
            self._library.resolver.path(one.module, folder) for one in module.imported.values() if one.is_relative
        }
        found = []
        for path in sorted(one for one in paths if one):
            neighbour = self._module(path)
            for name in neighbour.classes if neighbour is not None else ():
                shared = len(os.path.commonprefix([name[::-1], owner[::-1]]))
                if shared >= LEAST_SUFFIX:
                    found.append((-shared, path, name))
        return [(path, name) for _, path, name in sorted(found)]
