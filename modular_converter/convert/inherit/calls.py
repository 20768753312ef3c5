"""`super()` calls and calls on an explicit base, as syntax trees of `ast` show them."""

from __future__ import annotations

import ast
import re

from modular_converter.model.bindings import Function, is_generator
from modular_converter.model.nodes import super_attribute


CONTEXTS = frozenset({"contextmanager", "asynccontextmanager"})
"""The decorators that make context managers of generators."""
NO_DECORATORS = "no_inherit_decorator"
"""The decorator of an override that takes none from the parent."""


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


def inherited_decorators(function: Function, parent: Function) -> list[ast.expr]:
    """The decorators of the parent's method that an override without any takes over.

    Those that its parameters contradict are left out, `@abstractmethod`, since an override is concrete, and
    `@contextmanager` over a method that yields nothing.
    """
    if not parent.decorator_list:
        return []
    positional = [*function.args.posonlyargs, *function.args.args]
    first = positional[0].arg if positional else ""
    contradicted = {"abstractmethod"}
    if first == "self":
        contradicted |= {"classmethod", "staticmethod"}
    if len(positional) - len(function.args.defaults) > 1:
        contradicted |= {"property", "cached_property"}
    named = [(one, ast.unparse(one).rpartition(".")[2]) for one in parent.decorator_list]
    takes_body = any(is_super_statement(node, function.name) for node in function.body)
    if not (takes_body or CONTEXTS.isdisjoint(dict(named).values()) or is_generator(function)) and is_generator(
        parent
    ):
        contradicted |= CONTEXTS
    return [one for one, name in named if name not in contradicted]


def first_parameter(function: Function, parent: Function | None = None) -> str:
    """The parameter that holds the instance or the class; "" for a method in which `super()` has no instance.

    An override without decorators takes those of `parent`.
    """
    decorators = function.decorator_list or (inherited_decorators(function, parent) if parent is not None else [])
    positional = [*function.args.posonlyargs, *function.args.args]
    is_static = any(ast.unparse(decorator) == "staticmethod" for decorator in decorators)
    return positional[0].arg if positional and not is_static else ""
