"""The names that a module exports, read from its `__all__`."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from modular_converter.model.nodes import parse


@functools.lru_cache(maxsize=1024)  # the checks ask for the names of one neighbour once for each of its heirs
def exported_names(text: str) -> tuple[str, ...]:
    """The names in `__all__ = […]` and in the statements that extend it; lists may be added, and computed names are
    left out.
    """
    return tuple(str(one.value) for node in parse(text).body for one in exported_constants(node))


def has_unread_names(text: str) -> bool:
    """Whether an `__all__` holds names that `exported_names` cannot read, such as computed ones."""
    return any(not _is_read(node) for node in parse(text).body)


def _is_read(node: ast.stmt) -> bool:
    """Whether `exported_constants` reads all that a statement adds: only strings."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)):
        return node.value is None or _are_strings(node.value)
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return isinstance(call, ast.Constant)
    if call.func.attr == "append":
        return _are_strings(ast.List(call.args))
    return call.func.attr == "extend" and all(map(_are_strings, call.args))


def _are_strings(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _are_strings(node.left) and _are_strings(node.right)
    if not isinstance(node, (ast.List, ast.Tuple)):
        return False
    return all(isinstance(item, ast.Constant) and isinstance(item.value, str) for item in node.elts)


def exported_constants(node: ast.stmt) -> Iterator[ast.Constant]:
    """The names that `__all__ = […]`, `__all__ += […]`, `__all__.extend([…])` or `__all__.append("…")` adds."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.AugAssign)) and node.value is not None:
        yield from _strings(node.value)
    elif (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Attribute)
    ):
        if node.value.func.attr == "append":
            yield from _strings(ast.List(node.value.args))
        elif node.value.func.attr == "extend":
            yield from (name for argument in node.value.args for name in _strings(argument))


def _strings(node: ast.expr) -> Iterator[ast.Constant]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from _strings(node.left)
        yield from _strings(node.right)
    for item in node.elts if isinstance(node, (ast.List, ast.Tuple)) else []:
        if isinstance(item, ast.Constant) and isinstance(item.value, str):
            yield item
