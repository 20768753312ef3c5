"""MC306, MC307: what comes from a neighbour could be called differently."""

from __future__ import annotations

from collections.abc import Iterator

from modular_converter.convert.inherit.build import BuiltClass
from modular_converter.convert.inherit.rename_neighbours import RenamedNeighbour
from modular_converter.convert.lint.context import Context
from modular_converter.diagnostics import Diagnostic


def check_prefixes(context: Context) -> Iterator[Diagnostic]:
    """Look at the prefix that was chosen for each neighbour."""
    for dotted, renamed in context.neighbours.neighbours.items():
        prefix = renamed.prefix
        if not (prefix.is_ambiguous or prefix.collides_with) or not _matters(context, renamed):
            continue
        built = _asks_for_another(context, dotted, prefix.cased)
        if built is None:
            continue
        place = context.at_class(built)
        if prefix.collides_with:
            from modular_converter.rules import colliding_prefix

            # What the prefix adds to the model's own name is what the colliding class has in its name.
            others = [asked for asked in prefix.asked if asked != prefix.cased]
            wanted = next((one for one in others if one[len(prefix.cased) :] in prefix.collides_with), others[0])
            yield colliding_prefix.diagnose(place, dotted, wanted, prefix.collides_with, prefix.cased)
        else:
            from modular_converter.rules import ambiguous_prefix

            yield ambiguous_prefix.diagnose(place, dotted, prefix.asked, prefix.cased)


def _matters(context: Context, renamed: RenamedNeighbour) -> bool:
    """Whether anything arrives from a neighbour under a name that no author wrote."""
    path, originals = renamed.neighbour.path, renamed.neighbour.module.definitions
    return any(
        definition.origin.how == "copied" and definition.origin.path == path and definition.name not in originals
        for definition in context.generated.values()
    )


def _asks_for_another(context: Context, dotted: str, chosen: str) -> BuiltClass | None:
    """The first class whose name does not begin with the chosen prefix as its parent's new name does."""
    for built in context.classes.values():
        if built.parent is not None and built.neighbour == dotted and built.name != built.parent.name:
            return built
    return None
