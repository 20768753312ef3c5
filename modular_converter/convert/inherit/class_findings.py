"""Findings about overrides that cannot be merged, or only with a loss, with the place in the modular file."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Concatenate, ParamSpec

from modular_converter.findings import Finding, Location
from modular_converter.rules import override_not_mergeable


Given = ParamSpec("Given")


@dataclass(frozen=True)
class ClassFinding:
    """A finding about a class of the modular file."""

    node: ast.AST
    """The place: a node of the class's syntax tree, whose lines count from the class."""
    diagnose: Callable[[Location], Finding]


def finding_at(
    node: ast.AST, diagnose: Callable[Concatenate[Location, Given], Finding], *given: Given.args, **named: Given.kwargs
) -> ClassFinding:
    """The finding that a rule's function words, with its arguments except the place."""
    return ClassFinding(node, lambda place: diagnose(place, *given, **named))


def not_mergeable(node: ast.AST, method: str, reason: str, help: str = "") -> ClassFinding:
    """An override that has no counterpart in one class. Without `help`, the cure is to write out the parent's lines."""
    help = help or f"Write the lines of the parent's `{method}` out, and change what you need."
    return finding_at(node, override_not_mergeable.diagnose, method, reason, help)


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


def bad_signature(node: ast.stmt, method: str, error: Exception) -> ClassFinding:
    """A signature with `**super_kwargs` that cannot be completed."""
    return not_mergeable(
        node,
        method,
        f"with the parent's parameters its signature is wrong: {error}",
        "Give the new parameters defaults, or write the whole signature.",
    )


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
