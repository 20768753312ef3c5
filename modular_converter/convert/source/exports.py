"""The names that a module exports, read from its `__all__`."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from modular_converter.convert.source.module import Statement


def exported_names(statement: Statement | None) -> list[str]:
    """The names in the statement `__all__ = […]`, which may be a sum of lists; those that are no literals are left out."""
    return list(_names_in(statement.text)) if statement is not None else []


@functools.lru_cache(maxsize=1024)  # the checks ask for the names of one neighbour once for each of its heirs
def _names_in(text: str) -> tuple[str, ...]:
    node = ast.parse(text).body[0]
    return tuple(_strings(node.value)) if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value else ()


def _strings(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _strings(node.left)
        yield from _strings(node.right)
    for item in node.elts if isinstance(node, (ast.List, ast.Tuple)) else []:
        if isinstance(item, ast.Constant) and isinstance(item.value, str):
            yield item.value
