"""MC308, MC309, MC310: what is defined and not generated, generated and not exported, exported and not there."""

from __future__ import annotations

from collections.abc import Iterator

from modular_converter.convert.lint.context import Context
from modular_converter.convert.source.exports import exported_names
from modular_converter.convert.source.module import Role
from modular_converter.diagnostics import Diagnostic


UNSAID = frozenset({"logger"})
"""What a file has by custom, whether or not anything uses it."""


def check_unused(context: Context) -> Iterator[Diagnostic]:
    """Functions and assignments that no class uses."""
    for name, statement in context.module.definitions.items():
        if statement.role is Role.CLASS or name in UNSAID or name.startswith("__") or name in context.generated:
            continue
        from modular_converter.rules import unused_definition

        yield unused_definition.diagnose(context.at(name, statement), name)


def check_exports(context: Context) -> Iterator[Diagnostic]:
    """Compare `__all__` with what is generated."""
    statement = context.module.definitions.get("__all__")
    if statement is None or not context.exported:
        return
    definitions = context.module.definitions
    for name in context.exported:
        if name in context.generated or name in definitions or name in context.module.imported:
            continue
        from modular_converter.rules import unknown_in_all

        yield unknown_in_all.diagnose(context.at(name, statement), name, candidates=context.generated)
    resolution = context.neighbours.resolution
    for built in context.classes.values():
        written = resolution.parent(built.statement)
        if written is None or built.name in context.exported or built.name.startswith("_"):
            continue
        taken = resolution.taken[written]
        exports = resolution.neighbours[taken.neighbour].module.definitions.get("__all__")
        if taken.name in exported_names(exports):
            from modular_converter.rules import missing_from_all

            yield missing_from_all.diagnose(context.at_class(built), built.name)
