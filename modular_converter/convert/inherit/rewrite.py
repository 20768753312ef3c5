"""The signature of an override, taken apart on the syntax trees of libcst, which keep the form of the text."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import libcst as cst

from modular_converter.model.class_blocks import INDENT, SUPER_KWARGS
from modular_converter.model.overriding import NO_DECORATORS


def merged_header(own: str, inherited: str, kept: Sequence[bool], has_instance: bool) -> tuple[str, frozenset[str]]:
    """The decorators and the signature of an override, completed from the parent's, and the names of its parameters.

    Args:
        own, inherited: the lines of both up to the colon.
        kept: for each decorator of the parent, whether the override has it too.
        has_instance: whether the first parameter is the instance or the class, whose name may differ in the two.

    Raises:
        SyntaxError: libcst does not know the syntax.
        ValueError: a parameter without a default would follow one with a default.
    """
    child, parent = _parse_header(own), _parse_header(inherited)
    try:
        merged = _merge_signature(_merge_decorators(child, parent, kept), parent, has_instance)
    except cst.CSTValidationError as error:
        raise ValueError(str(error)) from None
    text = cst.Module([cst.ClassDef(cst.Name("_"), cst.IndentedBlock([merged], indent=INDENT))]).code
    return text.removeprefix("class _:\n").removesuffix(_BODY), _names(merged)


_BODY = f"{INDENT}{INDENT}_\n"


@functools.lru_cache(maxsize=256)  # a parent has many heirs
def _parse_header(text: str) -> cst.FunctionDef:
    try:
        (block,) = cst.parse_module(f"class _:\n{text}{_BODY}").body
    except cst.ParserSyntaxError as error:
        raise SyntaxError(error.message) from None
    assert isinstance(block, cst.ClassDef)
    (method,) = block.body.body
    assert isinstance(method, cst.FunctionDef)
    return method


def _merge_signature(child: cst.FunctionDef, parent: cst.FunctionDef, has_instance: bool) -> cst.FunctionDef:
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
        own, first = [*_named(child.params)], _positional(parent.params)[:1]
        # No more than the parent's first parameter and `**super_kwargs`.
        nothing = not isinstance(child.params.star_arg, cst.Param) and [*map(_name, own)] in ([], [*map(_name, first)])
        from_parent |= nothing
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
    # A parameter that the child takes by its name, too, and those behind it.
    ordinary = {_name(parameter) for parameter in child.params[has_instance and not child.posonly_params :]}
    by_position = overridden(parent.posonly_params, child.posonly_params)
    first = next((place for place, one in enumerate(by_position) if _name(one) in ordinary), len(by_position))
    first = first if first > has_instance else 0  # the instance alone
    merged = cst.Parameters(
        posonly_params=by_position[:first],
        params=[*by_position[first:], *overridden(parent.params, child.params)],
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


def _merge_decorators(child: cst.FunctionDef, parent: cst.FunctionDef, kept: Sequence[bool]) -> cst.FunctionDef:
    """The child with the decorators of the parent that are kept, and its own; `@no_inherit_decorator` only means that
    none is kept.
    """
    own = [one for one in child.decorators if getattr(one.decorator, "value", "") != NO_DECORATORS]
    inherited = itertools.compress(parent.decorators, kept)
    below = (child if child.decorators else parent).lines_after_decorators
    return child.with_changes(decorators=[*inherited, *own], lines_after_decorators=below)


def _names(method: cst.FunctionDef) -> frozenset[str]:
    variadic = [one for one in (method.params.star_arg, method.params.star_kwarg) if isinstance(one, cst.Param)]
    return frozenset(map(_name, [*_named(method.params), *variadic]))
