"""MC202, MC203, MC301 to MC305: what a class says of its parent that does not hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Union

from modular_converter.diagnostics import Diagnostic
from modular_converter.inherit.build import BuiltClass
from modular_converter.inherit.signature import SUPER_KWARGS
from modular_converter.inherit.super_calls import is_super_statement, super_call
from modular_converter.lint.context import Context, methods
from modular_converter.lint.removals import check_deleted, check_removed_attribute, check_stubs

Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]

# Parsing every class again would cost more than the checks: first see whether a text has anything to check.
_DEFINITION = r"^(?P<indent>[ \t]+)(?:async[ \t]+)?def[ \t]+(?P<method>\w+)"
_PLAIN_CALL = r"^(?P<deep>[ \t]+)(?:return[ \t]+)?super\(\)\.(?P<called>\w+)\([^()\n]*\)[ \t]*$"
_EVENT = re.compile(rf"{_DEFINITION}|{_PLAIN_CALL}|super\(|\bdel self\.|\bAttributeError\b|{SUPER_KWARGS}", re.MULTILINE)


def check_overrides(context: Context) -> Iterator[Diagnostic]:
    """Look at each class against its parent."""
    for built in context.classes.values():
        text = built.statement.text
        inherited = methods(built.parent.text) if built.parent and "super(" in text else {}
        if built.parent is None:
            if SUPER_KWARGS in text:
                yield from _check_signatures(context, built, {})
            continue
        yield from check_stubs(context, built)
        if not _has_anything(text, inherited):
            continue
        inherited = inherited or methods(built.parent.text)
        yield from _check_signatures(context, built, inherited)
        yield from _check_body(context, built, inherited)


def _has_anything(text: str, inherited: Mapping[str, str]) -> bool:
    """Whether a class has more than plain `super()` calls to methods of its parent, one a method."""
    method, indent = "", ""
    for event in _EVENT.finditer(text):
        if event["method"]:
            if not indent or len(event["indent"]) <= len(indent):
                method, indent = event["method"], event["indent"]
        elif not event["called"] or event["called"] != method or method not in inherited:
            return True
        elif len(event["deep"]) != 2 * len(indent):
            return True
        else:
            method = ""
    return False


def _functions(built: BuiltClass) -> list[Function]:
    return [node for node in _body(built) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def _body(built: BuiltClass) -> list[ast.stmt]:
    node = ast.parse(built.statement.text).body[0]
    assert isinstance(node, ast.ClassDef)
    return node.body


def _check_signatures(context: Context, built: BuiltClass, inherited: Mapping[str, str]) -> Iterator[Diagnostic]:
    if SUPER_KWARGS not in built.statement.text:
        return
    parent = context.neighbours.resolution.parent(built.statement) or ""
    for function in _functions(built):
        keywords = function.args.kwarg
        if keywords is not None and keywords.arg == SUPER_KWARGS and function.name not in inherited:
            from modular_converter.rules import super_kwargs_without_parent

            place = context.at_node(keywords, built.statement)
            yield super_kwargs_without_parent.diagnose(place, function.name, parent, candidates=inherited)


def _check_body(context: Context, built: BuiltClass, inherited: Mapping[str, str]) -> Iterator[Diagnostic]:
    for node in _body(built):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _check_method(context, built, node, inherited)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            yield from check_removed_attribute(context, built, node)


def _check_method(
    context: Context, built: BuiltClass, function: Function, inherited: Mapping[str, str]
) -> Iterator[Diagnostic]:
    """The `super()` calls of one method, and what it deletes behind the first that is a statement of its own."""
    parent = context.neighbours.resolution.parent(built.statement) or ""
    replaced: ast.stmt | None = None
    for position, statement in enumerate(function.body):
        if function.name in inherited and is_super_statement(statement, function.name):
            replaced = statement
            yield from check_deleted(context, built, function, position, inherited)
            break
    own = getattr(replaced, "value", None)
    for node in ast.walk(function):
        if not super_call(node) or node is own:
            continue
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        called = node.func.attr
        place = context.at_node(node.func, built.statement)
        if called in inherited:
            from modular_converter.rules import super_call_not_a_statement

            yield super_call_not_a_statement.diagnose(place, called, parent)
        elif called == function.name:
            from modular_converter.rules import super_call_not_in_parent

            yield super_call_not_in_parent.diagnose(place, called, parent)
