"""The code of a neighbour that a definition of a generated file comes from, as the neighbour has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from modular_converter.convert.examine.meanings import origin_of
from modular_converter.convert.inherit.build import BuiltClass
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood
from modular_converter.convert.inline.generated import EmittedDefinition, GeneratedFiles
from modular_converter.model.module import Statement


class DerivedDefinition(NamedTuple):
    """A definition of a generated file that is copied from a neighbour, or inherits from one."""

    definition: EmittedDefinition
    neighbour: str
    original: Statement
    """The neighbour's definition before renaming."""


def derived_definitions(
    neighbours: Neighbourhood, classes: Mapping[str, BuiltClass], files: GeneratedFiles
) -> list[DerivedDefinition]:
    """The definitions that come from neighbours, in the order of the files."""
    written = {
        dotted: {one.line: one for one in renamed.neighbour.module.statements if one.name}
        for dotted, renamed in neighbours.neighbours.items()
    }
    found: list[DerivedDefinition] = []
    for definition in (one for file in files.files for one in file.ordered):
        built = classes.get(definition.name)
        dotted = origin_of(definition, neighbours) or (built.neighbour if built and built.parent else "")
        original = _original(definition, written[dotted], neighbours) if dotted else None
        if original is not None:
            found.append(DerivedDefinition(definition, dotted, original))
    return found


def _original(
    definition: EmittedDefinition, written: Mapping[int, Statement], neighbours: Neighbourhood
) -> Statement | None:
    """The neighbour's definition before renaming; `written` holds all by their lines."""
    if definition.origin.how == "copied":
        return written.get(definition.origin.line)
    heir = neighbours.classes.get(definition.name)
    base = neighbours.resolution.parent(heir) if heir is not None else None
    return neighbours.resolution.definition(base) if base else None
