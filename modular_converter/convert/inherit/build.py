"""The classes of the modular file as they are generated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modular_converter.convert.inherit.merge import merge_class
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood
from modular_converter.convert.source import lexer
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.module import Statement
from modular_converter.settings.values import Settings


@dataclass(frozen=True)
class BuiltClass:
    """A class of the modular file as it is generated."""

    statement: Statement
    """As the modular file has it."""
    text: str
    lead: str
    uses: frozenset[str]
    neighbour: str = ""
    """`Neighbour.dotted` of its parent; "" without one."""
    parent: Statement | None = None
    """Its parent, renamed."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.statement.name


def build_classes(neighbours: Neighbourhood, library: Library) -> Mapping[str, BuiltClass]:
    """Merge each class that has a neighbour parent with it; the others stay as written. In the file's order."""
    built: dict[str, BuiltClass] = {}
    for name, statement in neighbours.classes.items():
        library.note(name)
        built[name] = _build(statement, neighbours, library.settings)
    return built


def _build(statement: Statement, neighbours: Neighbourhood, settings: Settings) -> BuiltClass:
    found = neighbours.parent_of(statement)
    if found is None:
        return BuiltClass(statement, statement.text, statement.lead, statement.uses)
    base, dotted, parent_name = found
    parent = neighbours.neighbours[dotted].definitions[parent_name]
    text = merge_class(statement.text, parent.text, parent.name, base, neighbours.names, settings)
    return BuiltClass(statement, text, parent.lead, lexer.identifiers(text), dotted, parent)
