"""Parse texts, walk over their syntax trees, and read dotted paths and `super()` in them."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence


BY_NAME = frozenset({"getattr", "setattr", "hasattr", "delattr"})
"""The functions that take the name of an attribute as a text."""
_NO_NODES = frozenset(
    ["arg", "asname", "attr", "conversion", "ctx", "id", "is_async", "kind", "level", "module", "simple"]
    + ["type_comment"]
)
"""Fields that hold texts, numbers or a context, whatever the node."""


def parse(text: str, path: str = "<unknown>") -> ast.Module:
    """The syntax tree of a text. An invalid escape in a stranger's string gives no warning. Raises `UNPARSABLE`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(text, path)


def walk(*roots: ast.AST) -> list[ast.AST]:
    """All nodes of some trees in the order of `ast.walk`, contexts left out: in a third of its time."""
    found = list(roots)
    for node in found:
        if fields := _FIELDS[type(node)]:
            _add_children(node, fields, found)
    return found


def walk_until(inner: tuple[type[ast.AST], ...], *roots: ast.AST) -> list[ast.AST]:
    """The nodes of some trees without those below nodes of some types."""
    found = list(roots)
    for node in found:
        if (fields := _FIELDS[type(node)]) and not isinstance(node, inner):
            _add_children(node, fields, found)
    return found


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes directly below a node, in order, without its context."""
    found: list[ast.AST] = []
    _add_children(node, _FIELDS[type(node)], found)
    return found


def _add_children(node: ast.AST, fields: Sequence[str], found: list[ast.AST]) -> None:
    for name in fields:
        value = getattr(node, name, None)
        if isinstance(value, ast.AST):
            found.append(value)
        elif value and isinstance(value, list):
            found += [part for part in value if isinstance(part, ast.AST)]


class _Fields(dict[type[ast.AST], tuple[str, ...]]):
    """The fields of a kind of node that may hold nodes."""

    def __missing__(self, kind: type[ast.AST]) -> tuple[str, ...]:
        named = (name for name in kind._fields if name not in _NO_NODES)
        fields = self[kind] = tuple(name for name in named if (name, kind) != ("value", ast.Constant))
        return fields


_FIELDS = _Fields()


def dotted(node: ast.expr) -> str:
    """`a.b.c` as text, or "" for any other expression."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""


def written(node: ast.expr) -> str:
    """An expression as text, as by `ast.unparse`; a path takes a tenth of its time."""
    return dotted(node) or ast.unparse(node)


def super_attribute(node: ast.AST, class_name: str = "") -> str:
    """The name of `super().name`; "" for any other expression.

    `class_name` is that of the class around it, as in `super(NewMLP, self)`; without one, `super` may say anything.
    """
    if (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Call)
        and is_super(node.value.func)
        and (not class_name or not node.value.args or ast.unparse(node.value.args[0]) == class_name)
    ):
        return node.attr
    return ""


def is_super(node: ast.AST) -> bool:
    """Whether this is the name `super`."""
    return isinstance(node, ast.Name) and node.id == "super"


def is_type_checking(test: ast.expr) -> bool:
    """Whether a condition is `TYPE_CHECKING` or `typing.TYPE_CHECKING`."""
    return getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"


def running_parts(statement: ast.stmt) -> list[ast.stmt]:
    """The parts of a statement that Python runs: none below `if TYPE_CHECKING`."""
    if isinstance(statement, ast.If) and is_type_checking(statement.test):
        return [part for inner in statement.orelse for part in running_parts(inner)]
    return [statement]
