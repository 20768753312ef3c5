"""One override merged with the parent's method, on the syntax trees of libcst: the text of each keeps its form."""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace

import libcst as cst

from modular_converter.convert.inherit.base_calls import CallSuper
from modular_converter.convert.inherit.bases import ClassShape
from modular_converter.convert.inherit.calls import calls_base, is_super_statement
from modular_converter.convert.inherit.class_findings import ClassFinding, bad_signature, finding_at, unknown_syntax
from modular_converter.convert.inherit.decorators import NO_DECORATORS, first_parameter, inherited_decorators
from modular_converter.convert.inherit.members import Member
from modular_converter.convert.inherit.overrides import Overrides
from modular_converter.convert.inherit.shorten import shorten
from modular_converter.convert.inherit.signature import merge_signature
from modular_converter.convert.inherit.statements import Body, Line, body_of, with_body
from modular_converter.convert.inherit.super_calls import Merge, merge_statements
from modular_converter.convert.inherit.taken import taken_statements
from modular_converter.model.bindings import Function
from modular_converter.rules import half_overridden


HOLDER = "class _:\n"
CHANGING = frozenset({"property", "cached_property", "lru_cache", "cache"})
"""The decorators that make something else than a plain method, so that callers have to know of them."""
WITHOUT_EFFECT = frozenset({"abstractmethod", "overload", "override", "final", "no_type_check"})


def merge_override(
    child: Member, parent: Member, shape: ClassShape, overrides: Overrides, findings: list[ClassFinding]
) -> Member:
    """The child's method, completed from the parent's: decorators, signature, docstring, body.

    Args:
        shape: the generated class.
        overrides: the assignments behind `super()` calls of the class so far; extended.
        findings: extended by what cannot be merged.
    """
    taken = inherited_decorators(child.function, parent.function, shape.added)
    findings.extend(_check_decorators(child.function, parent.function, taken))
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
        findings.append(unknown_syntax(child.node, name, error.message))
        return child
    except cst.CSTValidationError as error:
        findings.append(bad_signature(child.node, name, error))
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
    return replace(child, lead=parent.lead, text=_text(holder, merged), statements=statements)


def call_super_for_bases(member: Member, reached: frozenset[str], findings: list[ClassFinding]) -> Member:
    """A method that overrides nothing, with `super().method(…)` for `Base.method(self, …)`."""
    try:
        holder, own = _parse(member.text)
    except cst.ParserSyntaxError as error:
        findings.append(unknown_syntax(member.node, member.function.name, error.message))
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


def _check_decorators(child: Function, parent: Function, taken: Sequence[ast.expr]) -> Iterator[ClassFinding]:
    """Decorators of the parent's method that are taken and make something else of an override, and those that no longer
    apply to the parent's lines in an override with others.
    """
    takes_body = any(is_super_statement(node, child.name) for node in child.body)
    if not takes_body:
        for one in taken:
            if _decorator_name(one) in CHANGING:
                yield finding_at(child, half_overridden.decorator_taken, child.name, ast.unparse(one))
    elif child.decorator_list:
        applied = [(_decorator_name(one), _arguments(one)) for one in (*taken, *child.decorator_list)]
        for one in () if (NO_DECORATORS, frozenset()) in applied else parent.decorator_list:
            if _decorator_name(one) not in WITHOUT_EFFECT and (_decorator_name(one), _arguments(one)) not in applied:
                yield finding_at(child, half_overridden.decorator_lost, child.name, ast.unparse(one))


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


def _names(method: cst.FunctionDef) -> frozenset[str]:
    """The names of all parameters."""
    parameters = method.params
    variadic = [
        parameter for parameter in (parameters.star_arg, parameters.star_kwarg) if isinstance(parameter, cst.Param)
    ]
    named = [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params, *variadic]
    return frozenset(parameter.name.value for parameter in named)
