"""What inheritance does and one class cannot: found on the syntax trees, before or while methods are merged."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from modular_converter.convert.inherit.calls import super_attribute
from modular_converter.convert.inherit.members import ClassBlock
from modular_converter.convert.inherit.problems import Problem, not_mergeable, value_of_super
from modular_converter.convert.inherit.scopes import Function, all_reads, is_generator


def check_class(child: ClassBlock, parent: ClassBlock, parent_base: str) -> Iterator[Problem]:
    """Uses of the parent that have no counterpart once the parent is gone."""
    defined = {name for member in parent.members for name in member.binds}
    base = parent_base.partition("[")[0]
    for member in child.members:
        calls = {id(node.func) for node in ast.walk(member.node) if isinstance(node, ast.Call)}
        for node in ast.walk(member.node):
            name = super_attribute(node)
            if name in defined and id(node) not in calls:
                yield value_of_super(node, name, base)
            elif isinstance(node, ast.Name) and node.id == base:
                yield not_mergeable(
                    node,
                    base,
                    f"the generated class does not inherit from `{base}`, nor is it imported",
                    "Use `super()` in a statement of its own, or write out what you take from it.",
                )


def check_kinds(child: Function, parent: Function, statement: ast.stmt, around: int) -> Iterator[Problem]:
    """Coroutines and generators whose bodies cannot take each other's place.

    Args:
        statement: the `super()` statement of the child.
        around: the number of statements before and behind it.
    """
    is_awaited = isinstance(getattr(statement, "value", None), ast.Await)
    if isinstance(parent, ast.AsyncFunctionDef) != is_awaited or (
        is_awaited and not isinstance(child, ast.AsyncFunctionDef)
    ):
        kind = "a coroutine" if isinstance(parent, ast.AsyncFunctionDef) else "no coroutine"
        yield not_mergeable(
            statement,
            child.name,
            f"the parent's `{child.name}` is {kind}",
            f"Write `async def {child.name}` and `await super().{child.name}(…)` where the parent's is a coroutine.",
        )
    if is_generator(parent) and (isinstance(statement, ast.Expr) or around):
        yield not_mergeable(statement, child.name, f"the parent's `{child.name}` is a generator")
    if is_generator(child) and not is_generator(parent) and isinstance(statement, ast.Return):
        yield not_mergeable(statement, child.name, f"it is a generator, and the parent's `{child.name}` is none")


def check_captures(
    child: Function, parent: Function, statement: ast.stmt, kept: Sequence[ast.stmt], own: Sequence[ast.stmt]
) -> Iterator[Problem]:
    """Names that the parent's lines take from their module, and the child's method binds to something else."""
    arguments = [part.arg for part in ast.walk(parent) if isinstance(part, ast.arg)]
    stored = {
        part.id for part in ast.walk(parent) if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load)
    }
    imported = {
        (alias.asname or alias.name.partition(".")[0])
        for part in ast.walk(parent)
        if isinstance(part, (ast.Import, ast.ImportFrom))
        for alias in part.names
    }
    defined = {
        part.name
        for part in ast.walk(parent)
        if isinstance(part, (ast.FunctionDef, ast.ClassDef)) and part is not parent
    }
    free = all_reads(*kept) - stored - set(arguments) - imported - defined
    bound = {
        part.id
        for node in own
        for part in ast.walk(node)
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
    }
    bound |= {part.arg for part in ast.walk(child.args) if isinstance(part, ast.arg)}
    for name in sorted(free & bound):
        yield not_mergeable(
            statement,
            child.name,
            f"the parent's lines use a `{name}` of their module, and your method has a local `{name}`",
            f"Give your `{name}` another name.",
        )
