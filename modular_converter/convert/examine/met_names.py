"""Two names of a neighbour that become one name by renaming: beside `llama_loss`, there is an `emu_loss` in its code
already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from modular_converter.convert.examine.faults import compile_error
from modular_converter.convert.examine.originals import DerivedDefinition
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood


class MetNames(NamedTuple):
    """Two names of a neighbour with one name in generated code."""

    old: str
    new: str
    """The name that `old` gets, and that something else in the same code has already."""
    neighbour: str
    user: str


def find_met_names(neighbours: Neighbourhood, derived: Iterable[DerivedDefinition]) -> Iterator[MetNames]:
    """The names that meet in the code of one definition, or at the top level of a neighbour; each once."""
    seen: set[tuple[str, str]] = set()
    for definition, dotted, original in derived:
        renamed = neighbours.neighbours[dotted]
        module = renamed.neighbour.module
        rename = renamed.definitions.renamer.name
        for old in sorted(old for old in original.uses if rename(old) != old):
            new = rename(old)
            if new not in definition.uses or (dotted, old) in seen:
                continue
            is_global = old in module.names and new in module.names
            is_met = is_global or (new in original.uses and new not in module.names)
            if is_met and compile_error(definition.text) is None:  # two parameters of one name are MC501
                seen.add((dotted, old))
                yield MetNames(old, new, dotted, definition.name)
