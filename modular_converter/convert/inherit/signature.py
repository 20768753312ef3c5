"""The signature of an override: the child's, completed from the parent's."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from modular_converter.model.members import SUPER_KWARGS


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
