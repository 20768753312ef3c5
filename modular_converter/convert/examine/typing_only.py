"""Names that are imported for type checkers alone, but read when the generated file is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from modular_converter.convert.examine.fault import Fault, FaultKind
from modular_converter.model.bindings import bindings_of
from modular_converter.model.nodes import is_type_checking, running_parts


def typing_only_faults(tree: ast.Module) -> Iterator[Fault]:
    """One fault for each such name: Python raises a `NameError` before 3.14 where it stands in a signature."""
    hidden = _typing_only(tree)
    if not hidden:
        return
    for statement in tree.body:
        scope = bindings_of(*running_parts(statement))
        read = scope.needs if _postponed(tree) else scope.reads_now
        for name in sorted(read & hidden):
            hidden.discard(name)
            line = getattr(scope.reader(name, not _postponed(tree)), "lineno", statement.lineno)
            yield Fault(FaultKind.TYPING_ONLY, getattr(statement, "name", ""), name, line)


def _typing_only(tree: ast.Module) -> set[str]:
    """The names that only imports under `if TYPE_CHECKING:` bind."""
    hidden: set[str] = set()
    bound: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.If) and is_type_checking(statement.test):
            hidden |= bindings_of(*statement.body).binds
            bound |= bindings_of(*statement.orelse).binds
        else:
            bound |= bindings_of(statement).binds
    return hidden - bound


def _postponed(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
