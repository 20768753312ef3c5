"""A finished conversion, and what the checks of it ask: where its definitions come from, which classes are heirs, and where
in the modular file a finding stands.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from modular_converter.convert.examine.faults import place_in_modular
from modular_converter.convert.inherit.build import BuiltClass
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood, RenamedNeighbour
from modular_converter.convert.inherit.resolve import ModularFile
from modular_converter.convert.inline.collect import GeneratedFile, GeneratedFiles
from modular_converter.convert.inline.needed import OWN
from modular_converter.convert.source.library import Library
from modular_converter.facts import GeneratedDefinition
from modular_converter.findings import Location, locate_word
from modular_converter.model.module import Statement


class HeirOfNeighbour(NamedTuple):
    """A class of the modular file that inherits from a neighbour's class."""

    statement: Statement
    base: str
    """The parent as the class writes it."""
    source: str
    """The neighbour as the modular file names it."""
    parent: Statement
    """As the neighbour has it, not renamed."""
    parent_name: str
    """Renamed."""


@dataclass(frozen=True)
class FinishedConversion:
    """The neighbours, renamed; the classes, merged; the definitions of each generated file."""

    neighbours: Neighbourhood
    classes: Mapping[str, BuiltClass]
    collection: GeneratedFiles
    library: Library

    @property
    def target(self) -> ModularFile:
        return self.neighbours.target

    @property
    def renamed(self) -> Mapping[str, RenamedNeighbour]:
        """The neighbours by their names in the modular file."""
        return self.neighbours.neighbours

    @property
    def files(self) -> Sequence[GeneratedFile]:
        return self.collection.files

    @cached_property
    def text(self) -> str:
        """The text of the modular file."""
        return self.library.text(self.target.path)

    @cached_property
    def ordered(self) -> Mapping[str, Sequence[GeneratedDefinition]]:
        """Kind of generated file -> its definitions in order."""
        return {file.kind: file.ordered for file in self.files}

    @cached_property
    def definitions(self) -> Sequence[GeneratedDefinition]:
        """The definitions of all files, in the order of the files."""
        return [one for definitions in self.ordered.values() for one in definitions]

    @cached_property
    def imported_beside(self) -> Mapping[str, str]:
        """The files of the package that the modular file imports from, but for its neighbours, in order, each with its text."""
        resolver, folder = self.library.resolver, os.path.dirname(self.target.path)
        modules = {one.module if one.module.strip(".") else one.dotted for one in self.target.module.imported.values()}
        files = {resolver.file(one, folder) for one in modules if resolver.is_own(one, folder)}
        paths = sorted({*filter(None, files)} - self.neighbours.at_path.keys())
        return {path: self.library.text_if_readable(path) or "" for path in paths}

    @cached_property
    def heirs(self) -> Mapping[str, HeirOfNeighbour]:
        found: dict[str, HeirOfNeighbour] = {}
        for name, statement in self.neighbours.classes.items():
            if taken := self.neighbours.parent_of(statement):
                base, source, parent_name = taken
                parent = self.neighbours.resolution.definition(base)
                assert parent is not None
                found[name] = HeirOfNeighbour(statement, base, source, parent, parent_name)
        return found

    @cached_property
    def written_heirs(self) -> Mapping[str, HeirOfNeighbour]:
        """The same, where a class that stands for a parent is no heir, but the one beside it."""
        apart = self.neighbours.resolution.apart
        return {apart.get(name, name): one for name, one in self.heirs.items()}

    def is_own(self, definition: GeneratedDefinition) -> bool:
        """Whether the modular file has a definition: it is written there, or merged with its parent."""
        return definition.origin.path == self.target.path

    def merged(self, definition: GeneratedDefinition) -> BuiltClass | None:
        """The heir that a definition is, None for any other definition."""
        return self.classes[definition.name] if definition.origin.how == "merged" else None

    def copied_from(self, definition: GeneratedDefinition) -> str:
        """The neighbour that a definition is copied from; `OWN` for a definition that the author wrote or merged."""
        if definition.origin.how != "copied":
            return OWN
        return self.neighbours.at_path.get(definition.origin.path, OWN)

    def source_of(self, definition: GeneratedDefinition) -> str:
        """The neighbour that a definition is copied from, or that has its parent; else `OWN`."""
        built = self.classes.get(definition.name)
        return self.copied_from(definition) or (built.neighbour if built is not None else OWN)

    def at(self, word: str, line: int = 1) -> Location:
        """The first place of a word in the modular file at or below a line."""
        return locate_word(self.target.path, word, self.text, line)

    def place_of(self, definition: GeneratedDefinition, word: str = "") -> Location:
        """The place in the modular file where an author has to look for a word of a definition."""
        return place_in_modular(self.target.path, self.text, definition.origin, word)
