"""One override merged with the parent's method, on the syntax trees of libcst: the text of each keeps its form."""

from __future__ import annotations

import ast
import copy
import functools
from dataclasses import replace

import libcst as cst

from modular_converter.convert.inherit.base_calls import CallSuper
from modular_converter.convert.inherit.bases import ClassShape
from modular_converter.convert.inherit.calls import NO_DECORATORS, calls_base, first_parameter, is_super_statement
from modular_converter.convert.inherit.members import Member
from modular_converter.convert.inherit.overrides import Overrides
from modular_converter.convert.inherit.problems import Problem, bad_signature, unknown_syntax
from modular_converter.convert.inherit.signature import merge_signature
from modular_converter.convert.inherit.statements import body_of, with_body
from modular_converter.convert.inherit.super_calls import Merge, merge_statements
from modular_converter.convert.source.index import first_line, is_docstring


HOLDER = "class _:\n"


def merge_override(
    child: Member, parent: Member, shape: ClassShape, overrides: Overrides, problems: list[Problem]
) -> Member:
    """The child's method with what it takes from the parent's: decorators, signature, docstring, body.

    Args:
        shape: the generated class.
        overrides: the assignments behind `super()` calls of the class so far; extended.
        problems: extended by what cannot be merged.
    """
    unravels = any(is_super_statement(node, child.function.name, shape.name) for node in child.function.body)
    own, inherited, rest = child, parent, ""
    if not unravels and not calls_base(child.text, child.function.name):
        # Parsing takes most of the time: bodies that stay as they are need none.
        (own, rest), (inherited, _) = _without_body(child), _without_body(parent)
    try:
        holder, tree = _parse(own.text)
        parent_tree = _parse(inherited.text)[1]
        merged = merge_signature(
            _merge_decorators(tree, parent_tree), parent_tree, bool(first_parameter(child.function, parent.function))
        )
    except cst.ParserSyntaxError as error:
        problems.append(unknown_syntax(child.node, child.function.name, error.message))
        return child
    except cst.CSTValidationError as error:
        problems.append(bad_signature(child.node, child.function.name, error))
        return child
    child_body, parent_body = body_of(tree, own.function), body_of(parent_tree, inherited.function)
    merge = Merge(child.function, parent.function, shape, child_body, parent_body, _names(merged), overrides, problems)
    lines = merge_statements(merge) if unravels else child_body.lines
    merged = with_body(merged, child_body.docstring or parent_body.docstring, lines, child_body.footer)
    if calls_base(child.text, child.function.name):
        merged = call_super(merged, child, shape.reached)
    text = _text(holder, merged)
    if rest:
        text = text[: text.rindex("\n", 0, -1) + 1] + rest
    return replace(child, lead=parent.lead, text=text)


def _without_body(member: Member) -> tuple[Member, str]:
    """A method with `pass` for the statements behind its docstring, and the lines of these statements."""
    function = member.function
    head = function.body[: is_docstring(function.body[0])]
    rest = function.body[len(head) :]
    lines = [""] * (member.line - 1) + member.text.split("\n")
    # Comments between the header, or the docstring, and the statements belong to these.
    before: list[ast.AST] = (
        [*head] if head else [*ast.walk(function.args), *([function.returns] if function.returns else [])]
    )
    end = max(function.lineno, *(getattr(part, "end_lineno", 0) for part in before), 0)
    start = first_line(rest[0], lines) - 1 if rest else 0
    if start < end:  # on the line of the header
        return member, ""
    indentation = lines[start][: len(lines[start]) - len(lines[start].lstrip())]
    while start > end and (not lines[start - 1].strip() or lines[start - 1].lstrip().startswith("#")):
        start -= 1
    short = copy.copy(function)
    short.body = [*head, ast.Pass()]
    text = "\n".join([*lines[member.line - 1 : start], f"{indentation}pass\n"])
    return replace(member, node=short, text=text), "\n".join(lines[start:])


def call_super_for_bases(member: Member, reached: frozenset[str], problems: list[Problem]) -> Member:
    """A method that overrides nothing, with `super().method(…)` for `Base.method(self, …)`."""
    try:
        holder, own = _parse(member.text)
    except cst.ParserSyntaxError as error:
        problems.append(unknown_syntax(member.node, member.function.name, error.message))
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


def _merge_decorators(child: cst.FunctionDef, parent: cst.FunctionDef) -> cst.FunctionDef:
    """The child with its own decorators when it has any, else the parent's; `@no_inherit_decorator` means none."""
    if not child.decorators:
        lines = parent.lines_after_decorators
        return child.with_changes(decorators=parent.decorators, lines_after_decorators=lines)
    own = [one for one in child.decorators if getattr(one.decorator, "value", "") != NO_DECORATORS]
    return child if len(own) == len(child.decorators) else child.with_changes(decorators=own)


def _names(method: cst.FunctionDef) -> frozenset[str]:
    """The names of all parameters."""
    parameters = method.params
    variadic = [
        parameter for parameter in (parameters.star_arg, parameters.star_kwarg) if isinstance(parameter, cst.Param)
    ]
    named = [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params, *variadic]
    return frozenset(parameter.name.value for parameter in named)
