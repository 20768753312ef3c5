"""The meaning of a name in a source, and which meanings an author replaces on purpose."""

from __future__ import annotations

import builtins
from typing import NamedTuple

from modular_converter.convert.inline.needed import OWN
from modular_converter.model.module import ImportedName, Role, Statement
from modular_converter.settings.values import Settings


BUILTINS = frozenset(name for name in dir(builtins) if name.islower())


class Meaning(NamedTuple):
    """The meaning of a name: a definition in a source, or an import."""

    source: str
    """`OWN` for the modular file, else the neighbour as the modular file names it."""
    statement: Statement | None = None
    """The definition, renamed; None for an import."""
    imported: str = ""
    """The dotted name of the imported object."""
    module: str = ""
    """The module that it is imported from."""

    def __str__(self) -> str:
        if self.imported:
            return f"`{self.imported}`"
        return f"`{self.source}`" if self.source else "the modular file"

    @property
    def is_sibling(self) -> bool:
        """Whether it is imported from another file of the same model, which this run may generate."""
        return self.imported.startswith(".") and not self.imported.startswith("..")


def builtin(name: str) -> Meaning | None:
    """The meaning of a name that Python itself binds."""
    return Meaning("", None, f"builtins.{name}", "builtins") if name in BUILTINS else None


def imported(name: ImportedName | None) -> Meaning | None:
    """The meaning of an imported name."""
    if name is None:
        return None
    dot = "." if name.name and not name.module.endswith(".") else ""
    whole = bool(name.name or name.asname)
    return Meaning(
        "", None, f"{name.module}{dot}{name.name}" if whole else name.bound, name.module if whole else name.bound
    )


def is_replacement(wanted: Meaning, found: Meaning, settings: Settings, is_import: bool) -> bool:
    """Whether the modular file replaces a neighbour's definition on purpose; an assignment only under certain names.

    A function or class replaces what the neighbour imports, if that is no module.
    """
    if found.source != OWN or found.statement is None:
        return False
    if is_import and (found.statement.role is Role.ASSIGNMENT or wanted.imported == wanted.module):
        return False
    if wanted.statement is not None and wanted.statement.role is found.statement.role is Role.ASSIGNMENT:
        parts = (*settings.overriding_assignments, *settings.overriding_unless_none)
        return wanted.source != OWN and any(part in found.statement.name for part in parts)
    return (wanted.statement is None or wanted.source != OWN) and wanted.module != "builtins"
