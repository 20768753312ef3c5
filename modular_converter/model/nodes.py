"""Parse texts, walk over their syntax trees, and read dotted paths and `super()` in them."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence


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


def targets_of(node: ast.AST) -> list[ast.expr]:
    """The targets of `a = b = 1`, `a: int = 1` and `a: int`; none of any other statement."""
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def named_values(statements: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """The plain names that statements assign, each with the value."""
    for node in statements:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            yield from ((one.id, node.value) for one in targets_of(node) if isinstance(one, ast.Name))


def decorators_of(node: ast.AST) -> list[str]:
    """The decorators of a definition as text without their arguments: `functools.lru_cache` of
    `@functools.lru_cache(maxsize=1)`.
    """
    return [decorator_path(one) for one in getattr(node, "decorator_list", ())]


def decorated_by(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The member `x` of the class whose `@x.setter` or `@x.register` decorates a method; "" without one."""
    for path in decorators_of(function):
        owner, _, attribute = path.rpartition(".")
        if owner.isidentifier() and (owner == function.name or attribute == "register"):
            return owner
    return ""


def decorator_path(decorator: ast.expr) -> str:
    """See `decorators_of`."""
    return written(decorator.func if isinstance(decorator, ast.Call) else decorator)


def functions_of(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions of a module and the methods of its classes, each with the name of its class, "" for none."""
    for node in tree.body:
        owner = node.name if isinstance(node, ast.ClassDef) else ""
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        yield from ((owner, one) for one in inner if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)))


def top_line(node: ast.AST) -> int:
    """The first line of a node that has a place, its decorators included."""
    starts: list[int] = [node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))]  # type: ignore[attr-defined]
    return min(starts)


def super_attribute(node: ast.AST, class_name: str = "") -> str:
    """The name of `super().name`; "" for any other expression.

    `class_name` is that of the class around it, as in `super(NewMLP, self)`, `super(type(self), self)` or `super(cls, cls)`;
    without one, `super` may say anything.
    """
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Call) and is_super(node.value.func):
        owner, *instance = [ast.unparse(one) for one in node.value.args] or ["__class__"]
        spelt = (text for one in instance for text in (one, f"type({one})", f"{one}.__class__"))
        own = ("__class__", class_name, *spelt)
        return node.attr if not class_name or owner in own else ""
    return ""


def sought_by_name(node: ast.AST) -> tuple[ast.Call, str] | None:
    """The call of `super` and the attribute of `getattr(super(), "name")` and the like; None for any other expression."""
    match node:
        case ast.Call(ast.Name(called), [ast.Call() as owner, ast.Constant(str(name)), *_]):
            is_public = name.isidentifier() and (not name.startswith("__") or name.endswith("__"))
            return (owner, name) if called in BY_NAME and is_super(owner.func) and is_public else None
    return None


def super_method(node: ast.AST | None, class_name: str = "") -> str:
    """The method that `super().method(…)` calls; "" for any other expression. See `super_attribute`."""
    return super_attribute(node.func, class_name) if isinstance(node, ast.Call) else ""


def statement_value(node: ast.stmt) -> ast.expr | None:
    """The value of an expression or a `return`, without its `await` or `yield from`."""
    value = node.value if isinstance(node, (ast.Expr, ast.Return)) else None
    return value.value if isinstance(value, (ast.Await, ast.YieldFrom)) else value


def method_call(node: ast.stmt, method: str, class_name: str = "") -> ast.Call | None:
    """The call of `super().method(…)` or `return super().method(…)`, also with `await` or `yield from`; None for other
    statements. See `super_attribute`.
    """
    value = statement_value(node)
    return value if isinstance(value, ast.Call) and super_method(value, class_name) == method else None


def is_super_statement(node: ast.stmt, method: str, class_name: str = "") -> bool:
    """Whether this is a statement of its own that calls `super().method(…)`: see `method_call`."""
    return method_call(node, method, class_name) is not None


def tested_classes(nodes: Iterable[ast.AST]) -> Iterator[Mapping[ast.expr, ast.expr | ast.MatchClass]]:
    """The class or the classes that each `isinstance`, `issubclass`, `except` and `case` among the nodes of `walk` asks for, each
    with its place: itself, or its pattern.
    """
    seen = set[int]()
    for node in nodes:
        match node:
            case ast.ExceptHandler(ast.expr() as tested) | ast.Call(
                ast.Name("isinstance" | "issubclass"), [_, tested]
            ):
                yield {one: one for one in getattr(tested, "elts", [tested])}
            case ast.MatchOr(patterns):
                found = [one for one in patterns if isinstance(one, ast.MatchClass)]
                seen.update(map(id, found))
                yield {one.cls: one for one in found}
            case ast.MatchClass(asked) if id(node) not in seen:
                yield {asked: node}


def mangling(name: str) -> str:
    """A pattern for the name of a class in the private names of its instances, `_OldMLP__size`."""
    return rf"(?<=\b_){re.escape(name.lstrip('_'))}(?=__\w)"


def is_super(node: ast.AST) -> bool:
    """Whether this is the name `super`."""
    return isinstance(node, (ast.Name, ast.Attribute)) and dotted(node) in ("super", "builtins.super")


def is_type_checking(test: ast.expr) -> bool:
    """Whether a condition is `TYPE_CHECKING` or `typing.TYPE_CHECKING`."""
    return getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"


def running_parts(statement: ast.stmt) -> list[ast.stmt]:
    """The parts of a statement that Python runs: none below `if TYPE_CHECKING`."""
    if isinstance(statement, ast.If) and is_type_checking(statement.test):
        return [part for inner in statement.orelse for part in running_parts(inner)]
    return [statement]
