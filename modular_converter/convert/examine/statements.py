"""The statements of a module; expressions, most of the syntax tree, are not visited."""

from __future__ import annotations

import ast
from collections.abc import Iterator


_BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")


def statements_in(node: ast.AST) -> list[ast.AST]:
    """The statements directly within one, in order, with the handlers and cases that hold further ones."""
    return [part for block in _BLOCKS for part in getattr(node, block, ())]


def all_statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements of a module, those of inner blocks too, in no order."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(statements_in(node))
