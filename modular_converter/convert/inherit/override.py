"""One override merged with the parent's method, on the syntax trees of libcst: the text of each keeps its form."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from dataclasses import replace

import libcst as cst

from modular_converter.convert.inherit.base_calls import CallSuper
from modular_converter.convert.inherit.bases import ClassShape
from modular_converter.convert.inherit.shorten import shorten
from modular_converter.convert.inherit.signature import merge_signature, with_parents_parameters
from modular_converter.convert.inherit.statements import Body, Line, Overrides, body_of, with_body
from modular_converter.convert.inherit.super_calls import Merge, merge_statements
from modular_converter.convert.inherit.taken import taken_statements
from modular_converter.findings import ClassFinding, finding_at
from modular_converter.model.class_blocks import Member
from modular_converter.model.overriding import (
    NO_DECORATORS,
    calls_base,
    first_parameter,
    inherited_decorators,
)
from modular_converter.rules import calls_of_super, merged_bodies


HOLDER = "class _:\n"


def merge_override(
    child: Member, parent: Member, shape: ClassShape, overrides: Overrides, findings: list[ClassFinding]
) -> Member:
    """The child's method, completed from the parent's: decorators, signature, docstring, body.

    Args:
        shape: the generated class.
        overrides: the assignments behind `super()` calls of the class so far; extended.
        findings: extended by what cannot be merged.
    """
    original, child = child, with_parents_parameters(child, parent.function)
    taken = inherited_decorators(child.function, parent.function, shape.added)
    name = child.function.name
    rewritten = name if calls_base(child.text, name) else ""
    own, inherited = shorten(child, rewritten), shorten(parent, rewritten)
    try:
        holder, tree = _parse(own.text)
        parent_tree = _parse(inherited.text)[1]
        merged = merge_signature(
            _merge_decorators(tree, parent_tree, [one in taken for one in parent.function.decorator_list]),
            parent_tree,
            bool(first_parameter(child.function, parent.function, shape.added)),
        )
    except cst.ParserSyntaxError as error:
        findings.append(finding_at(child.node, merged_bodies.unknown_syntax, name, error.message))
        return child
    except cst.CSTValidationError as error:
        findings.append(finding_at(child.node, calls_of_super.bad_signature, name, error))
        return child
    child_body = body_of(tree, child.function, own.statements)
    parent_body = body_of(parent_tree, parent.function, inherited.statements)
    merge = Merge(child.function, parent.function, shape, child_body, parent_body, _names(merged), overrides, findings)
    docstring, lines = child_body.docstring or _inherited_docstring(parent_body, shape), merge_statements(merge)
    merged = with_body(merged, docstring, lines, child_body.footer)
    if rewritten:
        merged = call_super(merged, child, shape.reached_by(name))
    nodes = [part.origin for part in ([docstring] if docstring else []) + lines]
    statements = taken_statements(nodes, child.function, parent.function)
    return replace(original, lead=parent.lead, text=_text(holder, merged), statements=statements)


def call_super_for_bases(member: Member, reached: frozenset[str], findings: list[ClassFinding]) -> Member:
    """A method that overrides nothing, with `super().method(…)` for `Base.method(self, …)`."""
    try:
        holder, own = _parse(member.text)
    except cst.ParserSyntaxError as error:
        findings.append(finding_at(member.node, merged_bodies.unknown_syntax, member.function.name, error.message))
        return member
    return replace(member, text=_text(holder, call_super(own, member, reached)))


def call_super(method: cst.FunctionDef, member: Member, reached: frozenset[str]) -> cst.FunctionDef:
    """The method with its calls on explicit bases written as calls of `super()`."""
    instance = first_parameter(member.function)
    if not instance:
        return method
    body = method.body.visit(CallSuper(member.function.name, reached, instance))
    assert isinstance(body, cst.BaseSuite)
    return method.with_changes(body=body)


@functools.lru_cache(maxsize=256)
def _parse(text: str) -> tuple[cst.Module, cst.FunctionDef]:
    """The syntax tree of a method, within that of a class that holds it alone. A parent has many heirs."""
    holder = cst.parse_module(HOLDER + text)
    (block,) = holder.body
    assert isinstance(block, cst.ClassDef)
    (method,) = block.body.body
    assert isinstance(method, cst.FunctionDef)
    return holder, method


def _text(holder: cst.Module, method: cst.FunctionDef) -> str:
    (block,) = holder.body
    assert isinstance(block, cst.ClassDef)
    body = block.body.with_changes(body=[method])
    return holder.with_changes(body=[block.with_changes(body=body)]).code.removeprefix(HOLDER)


def _merge_decorators(child: cst.FunctionDef, parent: cst.FunctionDef, taken: Sequence[bool]) -> cst.FunctionDef:
    """The child with the decorators of the parent that are taken, and its own; `@no_inherit_decorator` only means that
    none is taken.
    """
    own = [one for one in child.decorators if getattr(one.decorator, "value", "") != NO_DECORATORS]
    inherited = itertools.compress(parent.decorators, taken)
    below = (child if child.decorators else parent).lines_after_decorators
    return child.with_changes(decorators=[*inherited, *own], lines_after_decorators=below)


def _inherited_docstring(parent: Body, shape: ClassShape) -> Line | None:
    """The parent's docstring, if an override without one takes it: by its quotes."""
    tree = parent.docstring.tree if parent.docstring is not None else None
    if not isinstance(tree, cst.SimpleStatementLine):
        return None
    text = cst.Module([]).code_for_node(tree.body[0]).lstrip("rRuU")
    return parent.docstring if text.startswith(shape.inherited_docstrings) else None


def _names(method: cst.FunctionDef) -> frozenset[str]:
    """The names of all parameters."""
    parameters = method.params
    variadic = [
        parameter for parameter in (parameters.star_arg, parameters.star_kwarg) if isinstance(parameter, cst.Param)
    ]
    named = [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params, *variadic]
    return frozenset(parameter.name.value for parameter in named)
