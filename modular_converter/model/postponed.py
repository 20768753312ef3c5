"""`from __future__ import annotations`: whether a module has it, and whether its annotations need it."""

from __future__ import annotations

import ast

from modular_converter.model.bindings import bindings_of
from modular_converter.model.module import Module
from modular_converter.model.nodes import running_parts, walk


POSTPONED = "from __future__ import annotations"


def has_postponed(module: Module) -> bool:
    """Whether a module postpones its annotations."""
    return any(one.module == "__future__" and one.name == "annotations" for one in module.imported.values())


def is_postponed(tree: ast.Module) -> bool:
    """The same for a syntax tree."""
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "__future__")
    return any(alias.name == "annotations" for node in imports for alias in node.names)


def needs_postponed(tree: ast.Module) -> bool:
    """Whether an annotation fails where Python up to 3.13 evaluates it: it reads a name that is bound further down, or for
    type checkers alone, or joins a string with `|`.
    """
    unbound = set(bindings_of(*tree.body).binds)
    for statement in tree.body:
        scope = bindings_of(*running_parts(statement))
        if not unbound.isdisjoint(scope.reads_now - scope.needs):
            return True
        unbound -= scope.binds
    return any(map(_joins_string, walk(tree)))


def _joins_string(node: ast.AST) -> bool:
    annotations = (getattr(node, "annotation", None), getattr(node, "returns", None))
    return any(
        isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.BitOr)
        and any(isinstance(side, ast.Constant) and isinstance(side.value, str) for side in (part.left, part.right))
        for annotation in annotations
        if isinstance(annotation, ast.expr)
        for part in walk(annotation)
    )
