"""The small changes that `mutate_code.py` makes, each as a function from a node of a syntax tree to another one."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any


OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


DROPPED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Return, ast.Raise, ast.Continue, ast.Break)


def change_of(node: ast.AST) -> Callable[[Any], ast.AST] | None:
    """A function that changes a node and returns it or its replacement; None for a node that stays."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        return _turn_round
    if isinstance(node, ast.BoolOp):
        return _swap
    if isinstance(node, (ast.If, ast.IfExp, ast.While)):
        return _negate
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int)):
        return _other_constant
    if isinstance(node, DROPPED) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        return lambda dropped: ast.Pass()
    return None


def _turn_round(node: ast.Compare) -> ast.AST:
    node.ops = [OPPOSITES[type(node.ops[0])]()]
    return node


def _swap(node: ast.BoolOp) -> ast.AST:
    node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    return node


def _negate(node: ast.If | ast.IfExp | ast.While) -> ast.AST:
    node.test = ast.UnaryOp(ast.Not(), node.test)
    return node


def _other_constant(node: ast.Constant) -> ast.AST:
    value: Any = node.value
    node.value = not value if isinstance(value, bool) else value + 1
    return node
