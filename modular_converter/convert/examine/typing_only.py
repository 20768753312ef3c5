"""Names that are imported for type checkers alone, but read when the generated file is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from modular_converter.convert.examine.fault import Fault, FaultKind
from modular_converter.convert.inherit.scopes import COMPREHENSIONS
from modular_converter.convert.source.index import imported_names


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def typing_only_faults(tree: ast.Module) -> Iterator[Fault]:
    """One fault for each such name: Python raises a `NameError` before 3.14 where it stands in a signature."""
    hidden = _typing_only(tree)
    if not hidden:
        return
    for statement in tree.body:
        for node in _read_at_import(statement, annotations=not _postponed(tree)):
            if isinstance(node, ast.Name) and node.id in hidden:
                hidden.discard(node.id)
                yield Fault(FaultKind.TYPING_ONLY, getattr(statement, "name", ""), node.id, node.lineno)


def is_type_checking(test: ast.expr) -> bool:
    """Whether a condition is `TYPE_CHECKING` or `typing.TYPE_CHECKING`."""
    return getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"


def _typing_only(tree: ast.Module) -> set[str]:
    """The names that only imports under `if TYPE_CHECKING:` bind."""
    hidden: set[str] = set()
    bound: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.If) and is_type_checking(statement.test):
            hidden.update(name for part in statement.body for name in bound_names(part))
            bound.update(name for part in statement.orelse for name in bound_names(part))
        else:
            bound.update(bound_names(statement))
    return hidden - bound


def bound_names(statement: ast.AST) -> Iterator[str]:
    """The names that a statement binds in its own scope, in all of its branches."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, (ast.Import, ast.ImportFrom)):
        yield from (name.bound for name in imported_names(statement))
    elif isinstance(statement, ast.Name) and isinstance(statement.ctx, ast.Store):
        yield statement.id
    elif not isinstance(statement, (ast.Lambda, *COMPREHENSIONS)):
        yield from (name for child in ast.iter_child_nodes(statement) for name in bound_names(child))


def _postponed(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)


def _read_at_import(node: ast.AST, *, annotations: bool) -> Iterator[ast.AST]:
    """The nodes that Python evaluates when it imports the module: no bodies of functions."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        yield current
        if isinstance(current, ast.If) and is_type_checking(current.test):
            waiting.extend(reversed(current.orelse))
        else:
            waiting.extend(reversed(list(_evaluated(current, annotations))))


def _evaluated(node: ast.AST, annotations: bool) -> Iterator[ast.AST]:
    if isinstance(node, _FUNCTIONS):
        yield from getattr(node, "decorator_list", ())
        yield from (default for default in (*node.args.defaults, *node.args.kw_defaults) if default is not None)
        if annotations and not isinstance(node, ast.Lambda):
            yield from (child for child in ast.walk(node.args) if isinstance(child, ast.arg))
            yield from [node.returns] if node.returns is not None else []
        return
    for child in ast.iter_child_nodes(node):
        if annotations or not (isinstance(node, (ast.AnnAssign, ast.arg)) and child is node.annotation):
            yield child
