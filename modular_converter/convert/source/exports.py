"""The names that a module exports, read from its `__all__`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from modular_converter.convert.source.module import Statement


def exported_names(statement: Statement | None) -> list[str]:
    """The names in the statement `__all__ = […]`, which may be a sum of lists; those that are no literals are left out."""
    if statement is None:
        return []
    node = ast.parse(statement.text).body[0]
    return list(_strings(node.value)) if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value else []


def _strings(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _strings(node.left)
        yield from _strings(node.right)
    for item in node.elts if isinstance(node, (ast.List, ast.Tuple)) else []:
        if isinstance(item, ast.Constant) and isinstance(item.value, str):
            yield item.value
