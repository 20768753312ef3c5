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
from modular_converter.model.overriding import is_class_method, method_call


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
    """`def f(self, x, **kwargs)` that hands `**kwargs`, and perhaps `*args`, to `super().f(x, **kwargs)`, with the parent's
    parameters for which these stand: in their place, or before `**kwargs` where the method has other uses for that. Any
    override stays as it is that uses them in a way which does not tell the keys, or whose parent reads none of them.
    """
    function, own = child.function, child.function.args
    call = next((found for node in function.body if (found := method_call(node, function.name))), None)
    if call is None or own.kwarg is None or own.kwarg.arg == SUPER_KWARGS or not _hands_on(call, own):
        return child
    added, keys = _stood_for(own, call, parent.args), _other_keys(function, call)
    is_plain = not parent.decorator_list or (is_class_method(parent) and len(parent.decorator_list) == 1)
    if added is None or keys is None or not is_plain:
        return child
    new = {one.arg for one in (*added.posonlyargs, *added.args, *added.kwonlyargs, added.vararg) if one}
    if keys:
        added.kwarg = own.kwarg
    scope = bindings_in(function)
    handed = {one.arg for one in (own.vararg, own.kwarg) if one}
    taken = (scope.local | scope.module_names | parameters_of(function)) - handed
    is_read = own.vararg is not None or not new.isdisjoint(bindings_in(parent).read_paths)
    if (
        not is_read
        or new & (keys | taken)
        or (added.kwarg and added.kwarg.arg in taken)
        or (keys and not parent.args.kwarg)
    ):
        return child
    handing = next((one for one in call.args if isinstance(one, ast.Starred)), None) or call.keywords[-1]
    text = _replaced(child, handing, call.keywords[-1], _passed(call, own, added))
    text = _with_parameters(replace(child, text=text), own, added)
    holder = parse("\n" * (child.line - 2) + f"class _:\n{text}").body[0]
    assert isinstance(holder, ast.ClassDef)
    return replace(child, node=holder.body[0], text=text)


def _with_parameters(child: Member, own: ast.arguments, added: ast.arguments) -> str:
    """The text of a method with the parameters that its `*args` and `**kwargs` stand for. The others keep their text where
    the new ones stand together.
    """
    assert own.kwarg is not None
    if own.vararg is None:
        new = ast.unparse(ast.arguments([], [], None, added.kwonlyargs, added.kw_defaults, added.kwarg, []))
        return _replaced(child, own.kwarg, own.kwarg, new.removeprefix("*, ") if own.kwonlyargs else new, stars="**")
    extended = copy.deepcopy(own)
    if added.posonlyargs:
        extended.posonlyargs, extended.args = [*own.posonlyargs, *own.args, *added.posonlyargs], []
    extended.args += added.args
    extended.defaults += added.defaults
    extended.kwonlyargs += added.kwonlyargs
    extended.kw_defaults += added.kw_defaults
    extended.vararg, extended.kwarg = added.vararg, added.kwarg
    return _replaced(child, (*own.posonlyargs, *own.args)[0], own.kwarg, ast.unparse(extended))


def _hands_on(call: ast.Call, own: ast.arguments) -> bool:
    """Whether a call hands on `*args`, behind other positional arguments, and `**kwargs`, behind all others."""
    unpacked = [ast.unparse(one) for one in (*call.args[:-1], *call.args[-1:]) if isinstance(one, ast.Starred)]
    wanted = [f"*{own.vararg.arg}"] if own.vararg else []
    mappings = [one.value for one in call.keywords if one.arg is None]
    is_last = not wanted or (bool(call.args) and isinstance(call.args[-1], ast.Starred))
    assert own.kwarg is not None
    return (
        bool(own.posonlyargs or own.args)
        and unpacked == wanted
        and is_last
        and [ast.unparse(one) for one in mappings] == [own.kwarg.arg]
        and call.keywords[-1].arg is None
    )


def _stood_for(own: ast.arguments, call: ast.Call, theirs: ast.arguments) -> ast.arguments | None:
    """The parent's parameters that `*args` and `**kwargs` of a call stand for; None where they cannot be told apart."""
    positional = [*theirs.posonlyargs, *theirs.args][1:]
    defaults: list[ast.expr | None] = [*[None] * (len(positional) - len(theirs.defaults)), *theirs.defaults]
    defaults = defaults[len(defaults) - len(positional) :]
    number = sum(not isinstance(one, ast.Starred) for one in call.args)
    named = {one.arg for one in call.keywords}
    left = [*zip(positional, defaults, strict=True)][number:]
    kwonly = [pair for pair in zip(theirs.kwonlyargs, theirs.kw_defaults, strict=True) if pair[0].arg not in named]
    found = ast.arguments([], [], None, [], [], None, [])
    if own.vararg:
        has_default = [*[False] * (not own.defaults), *[True] * bool(own.defaults), *(bool(one) for _, one in left)]
        if number > len(positional) or any(one.arg in named for one, _ in left) or has_default != sorted(has_default):
            return None
        if theirs.posonlyargs[1 + number :] and len([*own.posonlyargs, *own.args]) > 1:
            return None
        found.posonlyargs = [one for one, _ in left if one in theirs.posonlyargs]
        found.args = [one for one, _ in left if one not in theirs.posonlyargs]
        found.defaults, found.vararg = [one for _, one in left if one], theirs.vararg
    else:
        if theirs.vararg or {one.arg for one, _ in left} & {one.arg for one in theirs.posonlyargs}:
            return None
        kwonly = [*(pair for pair in left if pair[0].arg not in named), *kwonly]
    found.kwonlyargs, found.kw_defaults = [one for one, _ in kwonly], [one for _, one in kwonly]
    found.kwarg = theirs.kwarg
    return copy.deepcopy(found)


def _other_keys(function: Function, call: ast.Call) -> frozenset[str] | None:
    """The keys with which a method uses its `**kwargs` above a call that they are handed on in; None if it does something
    else with them, or anything with `*args`.
    """
    own = function.args
    handed = {one.arg for one in (own.vararg, own.kwarg) if one}
    keys: set[str] = set()
    uses = -len(handed)  # one of each in the call
    for node in walk(*function.body):
        uses += isinstance(node, ast.Name) and node.id in handed
        match node:
            case (
                ast.Call(
                    func=ast.Attribute(value=ast.Name(id=name), attr="pop" | "get"), args=[ast.Constant(value=key), *_]
                )
                | ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=key))
                | ast.Compare(
                    left=ast.Constant(value=key), ops=[ast.In() | ast.NotIn()], comparators=[ast.Name(id=name)]
                )
            ) if own.kwarg and name == own.kwarg.arg and node.lineno < call.lineno:
                keys.add(str(key))
                uses -= 1
    return None if uses else frozenset(keys)


def _passed(call: ast.Call, own: ast.arguments, added: ast.arguments) -> str:
    """The arguments of a call from `*args` on, or else in place of `**kwargs`, with those parameters that it stands for."""
    passed = [one.arg for one in (*added.posonlyargs, *added.args)]
    passed += [f"*{added.vararg.arg}"] if added.vararg else []
    passed += [ast.unparse(one) for one in call.keywords[:-1]] if own.vararg else []
    passed += [f"{one.arg}={one.arg}" for one in added.kwonlyargs]
    passed += [f"**{added.kwarg.arg}"] if added.kwarg else []
    return ", ".join(passed)


def _replaced(
    member: Member, first: ast.expr | ast.arg | ast.keyword, last: ast.arg | ast.keyword, new: str, stars: str = ""
) -> str:
    """The text of a method with another text from one node, with `stars` before it, to another; it keeps the number of its
    lines.
    """
    lines = member.text.split("\n")
    starts = [*itertools.accumulate((len(line) + 1 for line in lines), initial=0)]
    top, bottom = first.lineno - member.line, (last.end_lineno or last.lineno) - member.line
    start = starts[top] + character_column(lines[top], first.col_offset)
    start = member.text.rindex(stars, 0, start) if stars else start
    end = starts[bottom] + character_column(lines[bottom], last.end_col_offset or 0)
    return f"{member.text[:start]}{new}{chr(10) * (bottom - top)}{member.text[end:]}"
