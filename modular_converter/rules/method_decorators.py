"""MC335: decorators that an override takes from the parent's method, or loses."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from modular_converter.findings import ClassFinding, Finding, Location, Rule, Severity, finding_at
from modular_converter.model.bindings import Function
from modular_converter.model.overriding import NO_DECORATORS, inherited_decorators, is_super_statement
from modular_converter.rules._examples import examples, modeling_old, new_mlp


if TYPE_CHECKING:
    from modular_converter.facts import TwoClasses


CHANGING = frozenset({"property", "cached_property", "lru_cache", "cache"})
"""The decorators that make something else than a plain method, so that callers have to know of them."""
WITHOUT_EFFECT = frozenset({"abstractmethod", "overload", "override", "final", "no_type_check"})


RULE = Rule(
    code="MC335",
    name="method-decorators",
    severity=Severity.WARNING,
    summary="an override takes a decorator of the parent's method, or the parent's lines in it lose one",
    explanation="""\
A method without decorators takes those of the parent's method. `@property`, `@lru_cache` and their like make
something else of it, which inheritance would not do. Where your method has decorators of its own, those of the
parent's do not apply to the parent's lines in it.

Write the decorator, or `@no_inherit_decorator` for none.
""",
    examples=examples(
        modeling_old("""\
import functools

from torch import nn


class OldMLP(nn.Module):
    @functools.lru_cache
    def scale(self):
        return 2
"""),
        bad=new_mlp("""\
    def scale(self):
        return 3
"""),
        good=new_mlp("""\
    @no_inherit_decorator
    def scale(self):
        return 3
"""),
    ),
    formerly="MC323",
)


def decorator_taken(location: Location, name: str, decorator: str) -> Finding:
    """The child's method has no decorators, so it takes those of the parent's, which make something else of it."""
    return Finding(
        RULE,
        location,
        f"`{name}` takes the parent's `@{decorator}`, which inheritance would not give it",
        help=f"Write `@{decorator}` above it, or `@no_inherit_decorator` for none.",
    )


def decorator_lost(location: Location, name: str, decorator: str) -> Finding:
    """The child's method has decorators of its own, and the parent's lines."""
    return Finding(
        RULE,
        location,
        f"the parent's `@{decorator}` does not apply to its lines in `{name}`, which has decorators of its own",
        help=f"Write `@{decorator}` below yours too, or write out what it does.",
    )


def compare(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find methods with other decorators than with inheritance."""
    for own, theirs in classes.overrides:
        if theirs.decorator_list:
            yield from _compare_methods(own, theirs, inherited_decorators(own, theirs, classes.added))


def _compare_methods(child: Function, parent: Function, taken: Sequence[ast.expr]) -> Iterator[ClassFinding]:
    """Decorators of the parent's method that are taken and make something else of an override, and those that no longer
    apply to the parent's lines in an override with others.
    """
    takes_body = any(is_super_statement(node, child.name) for node in child.body)
    if not takes_body:
        for one in taken:
            if _decorator_name(one) in CHANGING:
                yield finding_at(child, decorator_taken, child.name, ast.unparse(one))
    elif child.decorator_list:
        applied = [(_decorator_name(one), _arguments(one)) for one in (*taken, *child.decorator_list)]
        for one in () if (NO_DECORATORS, frozenset()) in applied else parent.decorator_list:
            if _decorator_name(one) not in WITHOUT_EFFECT and (_decorator_name(one), _arguments(one)) not in applied:
                yield finding_at(child, decorator_lost, child.name, ast.unparse(one))


def _decorator_name(decorator: ast.expr) -> str:
    """`lru_cache` of `@functools.lru_cache(maxsize=1)`."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called).rpartition(".")[2]


def _arguments(decorator: ast.expr) -> frozenset[str]:
    """The arguments of a decorator but for texts, which are words for a reader: `@auto_docstring(custom_intro="…")`."""
    if not isinstance(decorator, ast.Call):
        return frozenset()
    values: list[tuple[ast.AST, ast.expr]] = [(one, one) for one in decorator.args]
    values += [(one, one.value) for one in decorator.keywords]
    return frozenset(ast.unparse(one) for one, value in values if not _is_text(value))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
