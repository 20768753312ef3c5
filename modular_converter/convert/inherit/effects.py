"""The local names and attributes that a statement of a method reads and changes, as dotted paths (`h`, `self.up`)."""

from __future__ import annotations

import ast
from typing import NamedTuple

from modular_converter.convert.inherit.calls import super_attribute
from modular_converter.convert.inherit.scopes import COMPREHENSIONS, FUNCTIONS, declared_global, dotted, parameters_of
from modular_converter.facts.nodes import walk


MUTATORS = frozenset(
    [
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "pop",
        "popitem",
        "popleft",
        "remove",
        "reverse",
        "setdefault",
        "sort",
        "update",
    ]
)
"""Methods of lists, dictionaries, sets and queues that change them."""

AT_ONCE = frozenset(
    {"all", "any", "dict", "frozenset", "join", "list", "max", "min", "next", "set", "sorted", "sum", "tuple"}
)
"""Functions that use up an iterator before they return."""


class Effects(NamedTuple):
    """The paths that a statement deals with."""

    reads: frozenset[str]
    """Paths that it reads, with each prefix: `self.a.b` also reads `self.a`. Inner functions read the names that they
    capture.
    """
    binds: frozenset[str]
    """Paths that get another value, or are deleted."""
    changes: frozenset[str]
    """Paths whose objects are changed in place: `x[0] = 1`, `x.append(1)`, `change(x)`."""

    @property
    def writes(self) -> frozenset[str]:
        """Paths that have another value afterwards."""
        return self.binds | self.changes

    @property
    def objects_changed(self) -> frozenset[str]:
        """Paths whose objects are changed in place or get another attribute: `self.a` for `self.a.b = 1`."""
        return self.changes.union(path.rpartition(".")[0] for path in self.binds if "." in path)


def effects_of(*nodes: ast.AST) -> Effects:
    """The effects of statements, taken together."""
    visitor = _Visitor()
    for node in nodes:
        visitor.visit(node)
    return Effects(frozenset(visitor.reads), frozenset(visitor.binds), frozenset(visitor.changes))


def captured_by(statement: ast.stmt) -> frozenset[str]:
    """The names that functions, lambdas and generators within a statement capture and read when they run."""
    nodes = list(walk(statement))
    used_up = {id(argument) for node in nodes if isinstance(node, ast.Call) for argument in _used_up(node)}
    effects = effects_of(*(later for node in nodes if id(node) not in used_up and (later := _runs_later(node))))
    return frozenset(name for name in effects.reads | effects.binds if name and "." not in name)


def _used_up(call: ast.Call) -> list[ast.expr]:
    """The generators of a call that it iterates over before it returns, and the function that it sorts by."""
    name = getattr(call.func, "id", "join" if getattr(call.func, "attr", "") == "join" else "")
    keys = [keyword.value for keyword in call.keywords if keyword.arg == "key" and name in ("max", "min", "sorted")]
    return [*(one for one in call.args if isinstance(one, ast.GeneratorExp) and name in AT_ONCE), *keys]


def _runs_later(node: ast.AST) -> ast.AST | None:
    """The part of a node that runs when it is called or iterated over; None for a node that runs at once."""
    if isinstance(node, (*FUNCTIONS, ast.Lambda)):  # without defaults, annotations and decorators
        names = sorted(parameters_of(node))
        parameters = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
        if isinstance(node, ast.Lambda):
            return ast.Lambda(parameters, node.body)
        return ast.FunctionDef("", parameters, node.body, [])
    if isinstance(node, ast.GeneratorExp):
        first = ast.comprehension(node.generators[0].target, ast.Constant(None), node.generators[0].ifs, 0)
        return ast.GeneratorExp(node.elt, [first, *node.generators[1:]])
    return None


class _Visitor(ast.NodeVisitor):
    def __init__(self) -> None:
        self.reads: set[str] = set()
        self.binds: set[str] = set()
        self.changes: set[str] = set()

    def visit_Name(self, node: ast.Name) -> None:
        (self.reads if isinstance(node.ctx, ast.Load) else self.binds).add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        path = dotted(node)
        if path:
            (self.reads if isinstance(node.ctx, ast.Load) else self.binds).add(path)
        elif not isinstance(node.ctx, ast.Load):  # `x[0].size = 1`
            self.changes.add(dotted(_object(node)))
        self.visit(node.value)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.changes.add(dotted(_object(node)))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.reads.add(dotted(node.target))
        self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:  # `x: int` binds nothing
            self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call):
            given = [] if super_attribute(call.func) else [*call.args, *(keyword.value for keyword in call.keywords)]
            changed = [call.func.value] if isinstance(call.func, ast.Attribute) else []
            changed += (part for part in given if isinstance(part, (ast.Name, ast.Attribute, ast.Subscript)))
            self.changes.update(dotted(_object(part)) for part in changed)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if isinstance(node.func, ast.Attribute) and node.func.attr in MUTATORS:  # `size = kwargs.pop("size")`
            self.changes.add(dotted(_object(node.func.value)))
        self.generic_visit(node)

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.binds.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)

    visit_ImportFrom = visit_Import

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, (*FUNCTIONS, ast.Lambda, ast.ClassDef, *COMPREHENSIONS)):
            self._visit_scope(node)
            return
        name = getattr(node, "name", None) or getattr(node, "rest", None)
        if isinstance(name, str):  # `except E as name`, `case [*name]`, `case {**name}`
            self.binds.add(name)
        super().generic_visit(node)

    def _visit_scope(self, node: ast.AST) -> None:
        """An inner scope reads the names that it does not bind itself; its changes may happen when it is called."""
        inner = _Visitor()
        if isinstance(node, COMPREHENSIONS):
            self.visit(node.generators[0].iter)  # evaluated in the outer scope
        for part in ast.iter_child_nodes(node):
            inner.visit(part)
        parts = list(ast.walk(node))
        own = {name for name in inner.binds if "." not in name}
        own.difference_update(name for part in parts if isinstance(part, ast.Nonlocal) for name in part.names)
        if isinstance(node, (*FUNCTIONS, ast.Lambda)):
            own |= parameters_of(node)
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            own |= declared_global(node)
        if isinstance(node, COMPREHENSIONS):  # `:=` binds in the outer scope
            own -= {part.target.id for part in parts if isinstance(part, ast.NamedExpr)}
        hidden = own if not isinstance(node, ast.ClassDef) else ()  # methods do not see names of the class body
        self.reads |= {path for path in inner.reads if path.partition(".")[0] not in hidden}
        self.binds |= {path for path in inner.binds if path.partition(".")[0] not in own}
        self.changes |= {path for path in inner.changes if path.partition(".")[0] not in own}
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            self.binds.add(node.name)


def _object(node: ast.expr) -> ast.expr:
    """The path of the object in `a.b[0][1]` or `a.b[0].c()`: `a.b`."""
    while not isinstance(node, (ast.Name, ast.Attribute)) or not dotted(node):
        inner = getattr(node, "value", None) or getattr(node, "func", None)
        if not isinstance(inner, ast.expr):
            break
        node = inner
    return node


def covers(path: str, other: str) -> bool:
    """Whether a change of `path` is one of `other`: `self.a` covers `self.a.b`."""
    return path == other or other.startswith(f"{path}.")
