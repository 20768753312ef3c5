"""The code of a neighbour that a definition of a generated file comes from, as the neighbour has it."""

from __future__ import annotations

from collections.abc import Mapping

from modular_converter.convert.examine.meanings import origin_of
from modular_converter.convert.inherit.build import BuiltClass
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood
from modular_converter.convert.inline.generated import EmittedDefinition
from modular_converter.convert.source.module import Statement


def written_statements(neighbours: Neighbourhood) -> Mapping[str, Mapping[int, Statement]]:
    """The definitions of each neighbour before renaming, by their lines."""
    return {
        dotted: {one.line: one for one in renamed.neighbour.module.statements if one.name}
        for dotted, renamed in neighbours.neighbours.items()
    }


def neighbour_behind(
    definition: EmittedDefinition, neighbours: Neighbourhood, classes: Mapping[str, BuiltClass]
) -> str:
    """The neighbour that a definition is copied from, or inherits from."""
    built = classes.get(definition.name)
    return origin_of(definition, neighbours) or (built.neighbour if built and built.parent else "")


def statement_behind(
    definition: EmittedDefinition, written: Mapping[int, Statement], neighbours: Neighbourhood
) -> Statement | None:
    """The neighbour's definition before renaming; `written` holds all by their lines."""
    if definition.origin.how == "copied":
        return written.get(definition.origin.line)
    heir = neighbours.classes.get(definition.name)
    base = neighbours.resolution.parent(heir) if heir is not None else None
    return neighbours.resolution.definition(base) if base else None
