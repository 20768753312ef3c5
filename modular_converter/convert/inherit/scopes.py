"""Names that statements read and bind in their own scope, from their syntax trees."""

from __future__ import annotations

import ast
from collections.abc import KeysView, Sequence
from typing import NamedTuple

from modular_converter.facts.nodes import walk, walk_until


Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class Names(NamedTuple):
    """The names that statements deal with."""

    read: frozenset[str]
    bound: frozenset[str]
    """The names that are assigned, defined, imported or deleted."""
    touched: frozenset[str]
    """The names that are bound, and those that are read by a statement with a call or a store, which may change their
    objects.
    """


class _Visitor(ast.NodeVisitor):
    """Collects names. The bodies of inner functions and classes, and all but the first iterable of a comprehension,
    are scopes of their own."""

    def __init__(self) -> None:
        self.read: set[str] = set()
        self.bound: set[str] = set()
        self.changes_objects = False

    def visit_Name(self, node: ast.Name) -> None:
        (self.read if isinstance(node.ctx, ast.Load) else self.bound).add(node.id)

    def visit_FunctionDef(self, node: Function) -> None:
        self.bound.add(node.name)
        self.read_all([*node.decorator_list, node.args, *([node.returns] if node.returns else [])])

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.bound.add(node.name)
        self.read_all([*node.decorator_list, *node.bases, *node.keywords])

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.read_all([node.args])

    def read_all(self, nodes: Sequence[ast.AST]) -> None:
        """Add all names in some nodes as read; a call among them may change objects."""
        for part in walk(*nodes):
            if isinstance(part, ast.Name):
                self.read.add(part.id)
            elif isinstance(part, ast.Call):
                self.changes_objects = True

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        self.bound.update(alias.asname or alias.name.partition(".")[0] for alias in node.names)

    visit_ImportFrom = visit_Import

    def visit_Call(self, node: ast.Call) -> None:
        self.changes_objects = True
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.read.update(part.id for part in walk(node.target) if isinstance(part, ast.Name))
        self.generic_visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        if isinstance(node, COMPREHENSIONS):
            self.visit(node.generators[0].iter)
            return
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            self.changes_objects = True
        name = getattr(node, "name", None) or getattr(node, "rest", None)
        if isinstance(name, str):  # `except E as name`, `case [*name]`, `case {**name}`
            self.bound.add(name)
        super().generic_visit(node)


def names_of(*nodes: ast.AST) -> Names:
    """The names that statements deal with when they are executed, without the bodies of functions that they define."""
    visitor = _Visitor()
    for node in nodes:
        visitor.visit(node)
    touched = visitor.bound | visitor.read if visitor.changes_objects else visitor.bound
    return Names(frozenset(visitor.read), frozenset(visitor.bound), frozenset(touched))


def all_reads(*nodes: ast.AST) -> frozenset[str]:
    """The names and dotted paths (`self.x`) that statements read, in inner functions too."""
    found: set[str] = set()
    for part in walk(*nodes):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            found.add(part.id)
        elif isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Load):
            found.add(dotted(part))
    return frozenset(found - {""})


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


def targets_of(node: ast.stmt) -> tuple[str, ...]:
    """The targets of an assignment as text (`a = b = 1` has two); () for any other statement."""
    if isinstance(node, ast.Assign):
        return tuple(map(written, node.targets))
    return (written(node.target),) if isinstance(node, ast.AnnAssign) and node.value is not None else ()


def parameters_of(function: Function | ast.Lambda) -> KeysView[str]:
    """The names of all parameters in their order, those with stars last."""
    arguments = function.args
    variadic = [parameter for parameter in (arguments.vararg, arguments.kwarg) if parameter is not None]
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, *variadic]
    return dict.fromkeys(parameter.arg for parameter in named).keys()


def declared_global(function: Function | ast.ClassDef) -> frozenset[str]:
    """The names that a function declares `global`."""
    return frozenset(name for node in own_nodes(function) if isinstance(node, ast.Global) for name in node.names)


def own_nodes(function: Function | ast.ClassDef) -> list[ast.AST]:
    """The nodes of a function's body in the order of `ast.walk`, without those of inner functions and classes."""
    return walk_until((*FUNCTIONS, ast.Lambda, ast.ClassDef), *function.body)


def attributes_set(function: Function) -> set[str]:
    """The attributes that a method sets of its first parameter."""
    first = next((one.arg for one in (*function.args.posonlyargs, *function.args.args)), "")
    return {
        node.attr
        for node in (walk(function) if first else ())
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and dotted(node.value) == first
    }


def is_generator(function: Function) -> bool:
    """Whether a function yields."""
    return any(isinstance(node, (ast.Yield, ast.YieldFrom)) for node in own_nodes(function))
