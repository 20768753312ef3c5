"""Findings about overrides that cannot be merged, or only with a loss, with the place in the modular file."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from modular_converter.findings import Finding, Location
from modular_converter.rules import (
    half_overridden,
    override_not_mergeable,
    several_assignments_replaced,
    shared_local_name,
    statement_not_repeated,
    super_argument_ignored,
    super_call_not_a_statement,
)


@dataclass(frozen=True)
class ClassFinding:
    """A finding about a class of the modular file."""

    node: ast.AST
    """The place: a node of the class's syntax tree, whose lines count from the class."""
    diagnose: Callable[[Location], Finding]


def not_mergeable(node: ast.AST, method: str, reason: str, help: str = "") -> ClassFinding:
    """An override that has no counterpart in one class. Without `help`, the cure is to write out the parent's lines."""
    help = help or f"Write the lines of the parent's `{method}` out, and change what you need."
    return ClassFinding(node, lambda place: override_not_mergeable.diagnose(place, method, reason, help))


def parameter_missing(node: ast.AST, method: str, parameter: str) -> ClassFinding:
    """The parent's code reads a parameter for which the child has neither a name nor an argument."""
    return not_mergeable(
        node,
        method,
        f"the parent's lines read its parameter `{parameter}`, which has no value here",
        f"Add `{parameter}` to the parameters, or assign it above the call.",
    )


def argument_unpacked(node: ast.AST, method: str, parameter: str) -> ClassFinding:
    """The parent's code reads a parameter whose value comes from `*args` or `**kwargs` of the call."""
    return not_mergeable(
        node,
        method,
        f"the parent's lines read its parameter `{parameter}`, whose value is in an unpacked argument of the call",
        f"Pass each argument by itself in `super().{method}(…)`, or write the method out without `super()`.",
    )


def argument_ignored(
    argument: ast.expr, method: str, parameter: str, assignment: str, passed: Sequence[str]
) -> ClassFinding:
    """An argument for a parameter of the parent that the child also has as a name. `assignment` gives it effect if the
    call then passes `passed`.
    """
    text = ast.unparse(argument)
    return ClassFinding(
        argument, lambda place: super_argument_ignored.diagnose(place, method, parameter, text, assignment, passed)
    )


def argument_not_passed(node: ast.AST, method: str, parameter: str) -> ClassFinding:
    """A parameter of the child that a call does not pass, and that reaches the parent's lines by its name.

    `parameter` has its stars: `*args`, `**kwargs`.
    """
    return ClassFinding(node, lambda place: super_argument_ignored.not_passed(place, method, parameter))


def value_of_super(node: ast.AST, name: str, parent: str) -> ClassFinding:
    """`super().name` that is no call, of something that the parent defines."""
    return ClassFinding(node, lambda place: super_call_not_a_statement.diagnose(place, name, parent, is_call=False))


def replaces_several(node: ast.stmt, target: str, written_in: str, replaced_in: str) -> ClassFinding:
    """An assignment that takes the place of several, or of one in another method."""
    return ClassFinding(
        node, lambda place: several_assignments_replaced.diagnose(place, target, written_in, replaced_in)
    )


def local_name_shared(node: ast.AST, name: str, state: str, method: str) -> ClassFinding:
    """A line of the child that reads a local name which both methods have."""
    return ClassFinding(node, lambda place: shared_local_name.diagnose(place, name, state, method))


def not_repeated(node: ast.AST, statement: str) -> ClassFinding:
    """A statement of the child that the parent has word for word."""
    return ClassFinding(node, lambda place: statement_not_repeated.diagnose(place, statement))


def bad_signature(node: ast.stmt, method: str, error: Exception) -> ClassFinding:
    """A signature with `**super_kwargs` that cannot be completed."""
    return not_mergeable(
        node,
        method,
        f"with the parent's parameters its signature is wrong: {error}",
        "Give the new parameters defaults, or write the whole signature.",
    )


def loses_annotation(node: ast.AST, name: str, annotation: str) -> ClassFinding:
    """An attribute without annotation that takes the place of one with an annotation."""
    return ClassFinding(node, lambda place: half_overridden.annotation_lost(place, name, annotation))


def keeps_accessor(node: ast.AST, name: str, accessor: str) -> ClassFinding:
    """A getter beside which the parent's setter or deleter stays."""
    return ClassFinding(node, lambda place: half_overridden.accessor_kept(place, name, accessor))


def takes_decorator(node: ast.stmt, method: str, decorator: str) -> ClassFinding:
    """A method without decorators that takes one of the parent's which makes something else of it."""
    return ClassFinding(node, lambda place: half_overridden.decorator_taken(place, method, decorator))


def decorator_not_applied(node: ast.stmt, method: str, decorator: str) -> ClassFinding:
    """A decorator of the parent's method whose lines stand in a method with other decorators."""
    return ClassFinding(node, lambda place: half_overridden.decorator_lost(place, method, decorator))


def replaces_decorator(node: ast.stmt, decorator: str) -> ClassFinding:
    """A decorator of the parent that made methods of it, and that is gone."""
    return ClassFinding(node, lambda place: half_overridden.decorator_replaced(place, decorator))


def counts_for_both(node: ast.AST, effect: str, cure: str) -> ClassFinding:
    """A `@dataclass` of one class that would count for both."""
    return ClassFinding(node, lambda place: half_overridden.decorator_differs(place, effect, cure))


def too_deep(node: ast.stmt, method: str) -> ClassFinding:
    """An expression that Python parses, but whose tree is too deep to be written out recursively."""
    return not_mergeable(
        node,
        method,
        "an expression of it, or of the parent's method, is nested too deeply",
        "Write the expression as several statements, each with a part of it.",
    )


def unknown_syntax(node: ast.stmt, method: str, message: str) -> ClassFinding:
    """Syntax that this Python parses and libcst does not."""
    return not_mergeable(
        node,
        method,
        f"libcst does not know its syntax, or that of the parent's method ({message})",
        "Write it in the syntax of an earlier Python, or install a newer libcst.",
    )
