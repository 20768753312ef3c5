"""The differences from Python's own inheritance that docs/guide/ describes, and no finding names: an author wants them.

The rules here are narrow and look at the modular file and its neighbours only, never at the generated file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator


EVERYTHING = "*"
"""Stands for all members of a class: its `__init__` is concerned."""


def documented(modular: str, *neighbours: str) -> frozenset[tuple[str, str]]:
    """`(class, member)` for each override whose meaning the guide gives otherwise than Python."""
    parents = {node.name: node for text in neighbours for node in _classes(text)}
    found: set[tuple[str, str]] = set()
    for node in _classes(modular):
        bases = [parents[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in parents]
        for method in _functions(node):
            inherited = next((one for base in bases for one in _functions(base) if one.name == method.name), None)
            methods = [one for holder in (node, *bases) for one in _functions(holder)]
            if inherited is not None and (about := _about(method, inherited, methods)):
                found.add((node.name, about))
    return frozenset(found)


def _about(method: ast.FunctionDef, inherited: ast.FunctionDef, methods: list[ast.FunctionDef]) -> str:
    """The member that the guide's rules concern: the method, all of them for `__init__`, "" for none.

    Args:
        methods: those of the class and its bases.
    """
    if _is_stub(method):
        return method.name
    call = next((place for place, part in enumerate(method.body) if _calls_super(part, method.name)), None)
    if (
        call is None
    ):  # an override without decorators has the parent's; `**super_kwargs` stands for the parent's parameters
        takes_the_parents = method.args.kwarg is not None and method.args.kwarg.arg == "super_kwargs"
        return method.name if takes_the_parents or (inherited.decorator_list and not method.decorator_list) else ""
    if method.name == "__init__":
        return EVERYTHING if _is_placed_differently(method.body[call + 1 :], inherited.body, methods) else ""
    returns = any(isinstance(node, ast.Return) and node.value is not None for node in ast.walk(inherited))
    takes_the_return = isinstance(method.body[call], ast.Expr) and call == len(method.body) - 1 and returns
    is_described = (
        takes_the_return
        or _is_decorated_twice(method, inherited)
        or _deletes_the_parents(method, inherited)
        or _drops_a_value(method.body[call + 1 :], inherited.body)
        or _passes_an_unbound_name(method.body[:call], method.body[call])
    )
    return method.name if is_described else ""


def _is_stub(method: ast.FunctionDef) -> bool:
    """`raise SomethingError(…)` as the first statement removes the parent's method."""
    first = method.body[0]
    raised = first.exc if isinstance(first, ast.Raise) else None
    return isinstance(raised, ast.Call) and isinstance(raised.func, ast.Name) and raised.func.id.endswith("Error")


def _is_decorated_twice(method: ast.FunctionDef, inherited: ast.FunctionDef) -> bool:
    """The parent's decorators do not apply to its body where that is inserted into a method with its own."""
    kinds = {"property", "classmethod", "staticmethod"}
    return bool(method.decorator_list) and not {*map(ast.unparse, inherited.decorator_list)} <= kinds


def _deletes_the_parents(method: ast.FunctionDef, inherited: ast.FunctionDef) -> bool:
    """`del h` of a local name that the parent's method binds and this one does not: Python raises an error there."""
    deleted = {target.id for part in method.body for target in getattr(part, "targets", ()) if _is_deleted(target)}
    nodes = [node for node in ast.walk(method) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    own = {node.id for node in nodes} | {part.arg for part in ast.walk(method) if isinstance(part, ast.arg)}
    bound = {node.id for node in ast.walk(inherited) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return bool(bound & (deleted - own))


def _passes_an_unbound_name(before: list[ast.stmt], call: ast.stmt) -> bool:
    """`except … as x` above `super().f(x)`: Python reads `x` for the call, the generated file only where it is used."""
    handlers = [node for part in before for node in ast.walk(part) if isinstance(node, ast.ExceptHandler)]
    return bool({one.name for one in handlers} & {node.id for node in ast.walk(call) if isinstance(node, ast.Name)})


def _is_deleted(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and isinstance(target.ctx, ast.Del)


def _is_placed_differently(after: list[ast.stmt], inherited: list[ast.stmt], methods: list[ast.FunctionDef]) -> bool:
    """An assignment replaces the parent's, in whose place the parent's later statements, and the methods that they use,
    read it.
    """
    for part in after:
        targets = {
            ast.unparse(target) for target in getattr(part, "targets", [getattr(part, "target", None)]) if target
        }
        places = [place for place, one in enumerate(inherited) if targets & set(_targets(one))]
        is_assignment = isinstance(part, (ast.Assign, ast.AnnAssign))
        if is_assignment and places and targets & _reads(inherited[places[0] + 1 :], methods):
            return True
        if (
            places
            and isinstance(part, (ast.Assign, ast.AnnAssign))
            and part.value
            and ast.unparse(part.value) in targets
        ):
            return True  # `self.x = self.x` removes the parent's
    return False


def _reads(statements: list[ast.stmt], methods: list[ast.FunctionDef]) -> set[str]:
    """What statements read, and the methods and properties that they use."""
    reads: set[str] = set()
    todo: list[ast.stmt] = [*statements]
    rest = list(methods)
    while todo:
        reads |= {ast.unparse(node) for one in todo for node in _loads(one)}
        used = [one for one in rest if f"self.{one.name}" in reads]
        rest = [one for one in rest if one not in used]
        todo = [part for one in used for part in one.body]
    return reads


def _drops_a_value(after: list[ast.stmt], inherited: list[ast.stmt]) -> bool:
    """An assignment replaces the parent's, whose value is not computed, and cannot raise, any more."""
    returns = bool(after) and isinstance(after[-1], ast.Return)
    read_below = [one for one in inherited if not (returns and isinstance(one, ast.Return))]
    return any(
        isinstance(part, ast.Assign)
        and isinstance(one, ast.Assign)
        and set(_targets(part)) == set(_targets(one))
        and any(isinstance(node, (ast.Call, ast.Attribute, ast.BinOp)) for node in ast.walk(one.value))
        and not set(_targets(one))
        & {ast.unparse(node) for later in read_below if later.lineno > one.lineno for node in _loads(later)}
        for part in after
        for one in inherited
    )


def _targets(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from map(ast.unparse, targets)


def _loads(statement: ast.stmt) -> Iterator[ast.AST]:
    for node in ast.walk(statement):
        stores = isinstance(node, ast.AugAssign)
        if stores:
            yield node.target
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
            yield node


def _calls_super(statement: ast.stmt, name: str) -> bool:
    value = getattr(statement, "value", None)
    if not isinstance(statement, (ast.Expr, ast.Return)) or not isinstance(value, ast.Call):
        return False
    called = value.func
    return isinstance(called, ast.Attribute) and called.attr == name and "super(" in ast.unparse(called.value)


def _classes(text: str) -> Iterator[ast.ClassDef]:
    return (node for node in ast.parse(text).body if isinstance(node, ast.ClassDef))


def _functions(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    return (part for part in node.body if isinstance(part, ast.FunctionDef))
