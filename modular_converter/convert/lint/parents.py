"""MC312: parents that are themselves built on another model's class."""

from __future__ import annotations

from collections.abc import Iterator

from modular_converter.convert.inherit.resolve import neighbour_module
from modular_converter.convert.lint.context import Context
from modular_converter.diagnostics import Diagnostic


def check_parents(context: Context) -> Iterator[Diagnostic]:
    """Look at the bases of each parent."""
    resolution, settings = context.neighbours.resolution, context.library.settings
    for built in context.classes.values():
        written = resolution.parent(built.statement)
        parent = resolution.definition(written) if written else None
        if written is None or parent is None:
            continue
        neighbour = resolution.neighbours[resolution.taken[written].neighbour]
        for base in parent.bases:
            origin = neighbour.module.imported.get(base)
            found = neighbour_module(origin.module, settings) if origin else None
            if origin is None or found is None or found.model == neighbour.model:
                continue
            from modular_converter.rules import deep_inheritance

            place = context.at(written, built.statement)
            yield deep_inheritance.diagnose(place, built.name, parent.name, origin.name, origin.module)
