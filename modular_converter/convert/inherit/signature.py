"""The signature of an override: the child's, completed from the parent's."""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Sequence
from dataclasses import replace

import libcst as cst

from modular_converter.findings import character_column
from modular_converter.model.bindings import Function, bindings_in, parameters_of
from modular_converter.model.class_blocks import Member
from modular_converter.model.members import SUPER_KWARGS
from modular_converter.model.nodes import parse, walk
from modular_converter.model.overriding import method_call


def merge_signature(child: cst.FunctionDef, parent: cst.FunctionDef, has_instance: bool) -> cst.FunctionDef:
    """The child with the completed signature. A missing return annotation is taken from the parent; `**super_kwargs`
    stands for the parent's parameters, which the child's override and extend. A comment behind the opening parenthesis
    is the parent's, as in all published files up to 5.12 that have one (granitemoehybrid).

    Args:
        has_instance: whether the first parameter is the instance or the class, whose name may differ in the two.

    Raises:
        libcst.CSTValidationError: a parameter without a default would follow one with a default.
    """
    keywords = child.params.star_kwarg
    from_parent = _has_comment(child) or _has_comment(parent)
    if keywords is not None and keywords.name.value == SUPER_KWARGS:
        from_parent |= (nothing := _says_nothing(child.params, parent.params))
        params = parent.params if nothing else _merge(child.params, parent.params, has_instance)
        child = child.with_changes(params=params)
    if from_parent:
        child = child.with_changes(whitespace_before_params=parent.whitespace_before_params)
    if child.returns is None and parent.returns is not None:
        child = child.with_changes(returns=parent.returns)
    return child


def _has_comment(method: cst.FunctionDef) -> bool:
    """Whether a comment stands between the opening parenthesis and the first parameter."""
    space = method.whitespace_before_params
    return isinstance(space, cst.ParenthesizedWhitespace) and (
        space.first_line.comment is not None or any(line.comment is not None for line in space.empty_lines)
    )


def _says_nothing(child: cst.Parameters, parent: cst.Parameters) -> bool:
    """Whether the child has no more than the parent's first parameter and `**super_kwargs`."""
    own, first = [*_named(child)], _positional(parent)[:1]
    return not isinstance(child.star_arg, cst.Param) and [*map(_name, own)] in ([], [*map(_name, first)])


def _merge(child: cst.Parameters, parent: cst.Parameters, has_instance: bool) -> cst.Parameters:
    """The parent's parameters, overridden in place and extended by the child's; its `**kwargs` stay."""
    overriding = {_name(parameter): parameter for parameter in _named(child)}
    taken = set(map(_name, _named(parent)))
    if has_instance:
        for own, inherited in zip(_positional(child)[:1], _positional(parent)[:1]):
            overriding[_name(inherited)] = own
            taken.add(_name(own))

    def overridden(inherited: Sequence[cst.Param], own: Sequence[cst.Param]) -> list[cst.Param]:
        found = [overriding.get(_name(parameter), parameter) for parameter in inherited]
        found += (parameter for parameter in own if _name(parameter) not in taken)
        return [parameter.with_changes(comma=_plain(parameter.comma)) for parameter in found]

    variadic = child.star_arg if isinstance(child.star_arg, cst.Param) else parent.star_arg
    merged = cst.Parameters(
        posonly_params=overridden(parent.posonly_params, child.posonly_params),
        params=overridden(parent.params, child.params),
        # A lone `*` is written anew where it is needed.
        star_arg=variadic if isinstance(variadic, cst.Param) else cst.MaybeSentinel.DEFAULT,
        kwonly_params=overridden(parent.kwonly_params, child.kwonly_params),
        star_kwarg=parent.star_kwarg,
    )
    return merged


def _plain(comma: cst.Comma | cst.MaybeSentinel) -> cst.Comma | cst.MaybeSentinel:
    """A comma on one line. One behind the last parameter makes the formatter put each on a line of its own."""
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" ")) if isinstance(comma, cst.Comma) else comma


def _named(parameters: cst.Parameters) -> list[cst.Param]:
    return [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params]


def _positional(parameters: cst.Parameters) -> list[cst.Param]:
    return [*parameters.posonly_params, *parameters.params]


def _name(parameter: cst.Param) -> str:
    return parameter.name.value


def with_parents_parameters(child: Member, parent: Function) -> Member:
    """`def f(self, *args, **kwargs)` that hands both to `super().f(*args, **kwargs)`, and does nothing else with them, with
    the parent's parameters in place of both. Any other override stays as it is.
    """
    function, own = child.function, child.function.args
    call = next((found for node in function.body if (found := method_call(node, function.name))), None)
    theirs = [*parent.args.posonlyargs, *parent.args.args]
    if call is None or not theirs or parent.decorator_list or not _only_passes_on(function, call):
        return child
    scope, names = bindings_in(function), parameters_of(parent) - {theirs[0].arg}
    if names & (scope.local | scope.module_names) - {*parameters_of(function)}:
        return child
    assert own.kwarg is not None
    parameters = copy.deepcopy(parent.args)
    (parameters.posonlyargs or parameters.args)[0].arg = own.args[0].arg
    passed = [one.arg for one in theirs[1:]]
    passed += [f"*{parent.args.vararg.arg}"] if parent.args.vararg else []
    passed += [f"{one.arg}={one.arg}" for one in parent.args.kwonlyargs]
    passed += [f"**{parent.args.kwarg.arg}"] if parent.args.kwarg else []
    text = _replaced(child, call.args[0], call.keywords[-1], ", ".join(passed))
    text = _replaced(replace(child, text=text), own.args[0], own.kwarg, ast.unparse(parameters))
    holder = parse("\n" * (child.line - 2) + f"class _:\n{text}").body[0]
    assert isinstance(holder, ast.ClassDef)
    return replace(child, node=holder.body[0], text=text)


def _only_passes_on(function: Function, call: ast.Call) -> bool:
    """Whether `*args` and `**kwargs` are a method's only parameters but the first, and stand in one call alone."""
    own = function.args
    if not (own.vararg and own.kwarg and len(own.args) == 1) or own.posonlyargs or own.kwonlyargs or own.defaults:
        return False
    given = [ast.unparse(one) for one in call.args] + [ast.unparse(one) for one in call.keywords]
    names = {own.vararg.arg, own.kwarg.arg}
    uses = [one for one in walk(*function.body) if isinstance(one, ast.Name) and one.id in names]
    return given == [f"*{own.vararg.arg}", f"**{own.kwarg.arg}"] and len(uses) == len(names)


def _replaced(member: Member, first: ast.expr | ast.arg, last: ast.arg | ast.keyword, new: str) -> str:
    """The text of a method with another text from one node to another; it keeps the number of its lines."""
    lines = member.text.split("\n")
    starts = [*itertools.accumulate((len(line) + 1 for line in lines), initial=0)]
    top, bottom = first.lineno - member.line, (last.end_lineno or last.lineno) - member.line
    start = starts[top] + character_column(lines[top], first.col_offset)
    end = starts[bottom] + character_column(lines[bottom], last.end_col_offset or 0)
    return f"{member.text[:start]}{new}{chr(10) * (bottom - top)}{member.text[end:]}"
