"""`super()` calls and calls on an explicit base, as syntax trees of `ast` show them."""

from __future__ import annotations

import ast
import re

from modular_converter.model.nodes import super_attribute


def is_super_statement(node: ast.stmt, method: str, class_name: str = "") -> bool:
    """Whether this is a statement of its own that calls `super().method(…)`: see `method_call`."""
    return method_call(node, method, class_name) is not None


def method_call(node: ast.stmt, method: str, class_name: str = "") -> ast.Call | None:
    """The call of `super().method(…)` or `return super().method(…)`, also with `await`; None for other statements.

    `class_name` is that of the class around it, as in `super(NewMLP, self)`; without one, `super` may say anything.
    """
    value = node.value if isinstance(node, (ast.Expr, ast.Return)) else None
    if isinstance(value, ast.Await):
        value = value.value
    return value if isinstance(value, ast.Call) and super_attribute(value.func, class_name) == method else None


def starred(call: ast.Call) -> list[ast.expr]:
    """The iterables that a call unpacks: `x` of `*x`."""
    return [argument.value for argument in call.args if isinstance(argument, ast.Starred)]


def mappings(call: ast.Call) -> list[ast.expr]:
    """The mappings that a call unpacks, `x` of `**x`: the called function gets copies of them."""
    return [keyword.value for keyword in call.keywords if keyword.arg is None]


def calls_base(text: str, method: str) -> bool:
    """Whether a method may call `Base.method(…)`: a quick test, since most need not be looked at."""
    return any(text[found.start() - 1] not in ")]" for found in re.finditer(rf"\.\s*{method}\s*\(", text))
