"""What an author gets wrong and must be told: the findings of a conversion that went through (docs/rules.md)."""

from __future__ import annotations

from collections.abc import Mapping

from modular_converter.diagnostics import Diagnostic
from modular_converter.inherit.build import BuiltClass
from modular_converter.inherit.rename_neighbours import Neighbourhood
from modular_converter.inline.collect import Collection
from modular_converter.source.library import Library


def lint(
    neighbours: Neighbourhood, classes: Mapping[str, BuiltClass], collection: Collection, library: Library
) -> tuple[Diagnostic, ...]:
    """The findings of one modular file, in the order of its lines."""
    return ()
