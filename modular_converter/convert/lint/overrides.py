"""MC202, MC203, MC301 to MC305: what a class says of its parent that does not hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from modular_converter.convert.inherit.build import BuiltClass
from modular_converter.convert.inherit.signature import SUPER_KWARGS
from modular_converter.convert.inherit.super_calls import is_super_statement, super_call
from modular_converter.convert.lint.context import Context, Function, Method, methods, parse_method
from modular_converter.convert.lint.removals import check_deleted, check_removed_attributes, check_stubs
from modular_converter.diagnostics import Diagnostic


# Parsing every method again would cost more than the checks: first see whether its text has anything to check.
_CALL = re.compile(r"\bsuper\(")
_PLAIN_CALL = re.compile(r"^([ \t]+)(?:return[ \t]+)?super\(\)\.(\w+)\((?:[^()]|\([^()]*\))*\)[ \t]*$", re.MULTILINE)


def check_overrides(context: Context) -> Iterator[Diagnostic]:
    """Look at each class against its parent."""
    for built in context.classes.values():
        text = built.statement.text
        if built.parent is None:
            if SUPER_KWARGS in text:
                yield from _check_methods(context, built, {})
            continue
        yield from check_stubs(context, built)
        if "AttributeError(" in text:
            yield from check_removed_attributes(context, built)
        if _CALL.search(text) or SUPER_KWARGS in text:
            yield from _check_methods(context, built, methods(built.parent.text))


def _check_methods(context: Context, built: BuiltClass, inherited: Mapping[str, Method]) -> Iterator[Diagnostic]:
    for method in methods(built.statement.text).values():
        if SUPER_KWARGS not in method.text and not _needs_a_look(method, inherited):
            continue
        function = parse_method(method)
        if function is None:
            continue
        yield from _check_signature(context, built, method, function, inherited)
        if built.parent is not None:
            yield from _check_calls(context, built, method, function, inherited)


def _needs_a_look(method: Method, inherited: Mapping[str, Method]) -> bool:
    """Whether a method has more than one plain `super()` call to the parent's method, or a `del` behind it."""
    calls = len(_CALL.findall(method.text))
    if not calls:
        return False
    plain = _PLAIN_CALL.search(method.text)
    if calls > 1 or plain is None or "del self." in method.text:
        return True
    return plain[2] != method.name or method.name not in inherited or len(plain[1]) != 2 * method.indent


def _check_signature(
    context: Context, built: BuiltClass, method: Method, function: Function, inherited: Mapping[str, Method]
) -> Iterator[Diagnostic]:
    keywords = function.args.kwarg
    if keywords is not None and keywords.arg == SUPER_KWARGS and function.name not in inherited:
        from modular_converter.rules import super_kwargs_without_parent

        place = context.at_node(keywords, built.statement, method)
        parent = context.neighbours.resolution.parent(built.statement) or ""
        yield super_kwargs_without_parent.diagnose(place, function.name, parent, candidates=inherited)


def _check_calls(
    context: Context, built: BuiltClass, method: Method, function: Function, inherited: Mapping[str, Method]
) -> Iterator[Diagnostic]:
    """The `super()` calls of one method, and what it deletes behind the first that is a statement of its own."""
    parent = context.neighbours.resolution.parent(built.statement) or ""
    replaced: ast.stmt | None = None
    for position, statement in enumerate(function.body):
        if function.name in inherited and is_super_statement(statement, function.name):
            replaced = statement
            behind = function.body[position + 1 :]
            yield from check_deleted(context, built, method, behind, inherited[function.name])
            break
    own = getattr(replaced, "value", None)
    for node in ast.walk(function):
        called = "" if node is own else super_call(node)
        if called and called in inherited:
            from modular_converter.rules import super_call_not_a_statement

            place = context.at_node(node, built.statement, method)
            yield super_call_not_a_statement.diagnose(place, called, parent)
        elif called and called == function.name:
            from modular_converter.rules import super_call_not_in_parent

            place = context.at_node(node, built.statement, method)
            yield super_call_not_in_parent.diagnose(place, called, parent)
