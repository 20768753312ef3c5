"""Calls that bind to the parameters of a function, and would not bind to those that it gets; uses of a method that becomes a
property, a static method or the like.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from modular_converter.findings import UNPARSABLE
from modular_converter.model.bindings import FUNCTIONS, Function, signature_of
from modular_converter.model.nodes import parse


class BrokenCall(NamedTuple):
    """A call that no longer binds."""

    path: str
    line: int
    name: str
    """The function."""


class _Call(NamedTuple):
    node: ast.Call
    owner: str
    """The class that it stands in; "" outside of classes."""


def broken_calls(path: str, old: str, new: str, others: Mapping[str, str]) -> Iterator[BrokenCall]:
    """The calls that bind to functions of the text `old` of a file and do not bind to those of `new`.

    Args:
        others: path -> text of further files, whose calls of the functions with another signature are looked at too.
    """
    before, after = dict(_functions(parse(old))), dict(_functions(parse(new)))
    changed = {
        place: (before[place], node)
        for place, node in after.items()
        if place in before
        and (ast.dump(before[place].args), _manner(before[place])) != (ast.dump(node.args), _manner(node))
    }
    if not changed:
        return
    names = {name for _, name in changed}
    for where, text in ((path, new), *((one, text) for one, text in others.items() if _may_call(text, names))):
        try:
            tree = parse(text)
        except UNPARSABLE:
            continue
        defined = {owner for owner, _ in dict(_functions(tree))}
        for (_, name), (was, now) in changed.items():
            used = (one for one in ast.walk(tree) if isinstance(one, ast.Attribute) and one.attr == name)
            if _manner(was) != _manner(now) and (use := next(used, None)):
                yield BrokenCall(where, use.lineno, name)
        for call in _calls(tree):
            for (owner, name), (was, now) in changed.items():
                if _means(call, owner, name, defined) and _binds(call, owner, was) and not _binds(call, owner, now):
                    yield BrokenCall(where, call.node.lineno, name)


def _may_call(text: str, names: Iterable[str]) -> bool:
    return any(name in text for name in names)


def _manner(function: Function) -> frozenset[str]:
    """The decorators that decide what a method is called with, or that it is not called at all."""
    named = (ast.unparse(one).rpartition(".")[2] for one in function.decorator_list)
    return frozenset(named) & {"staticmethod", "classmethod", "property", "cached_property", "setter"}


def _functions(tree: ast.Module) -> Iterator[tuple[tuple[str, str], Function]]:
    """The functions of a module and the methods of its classes by class and name."""
    for node in tree.body:
        if isinstance(node, FUNCTIONS):
            yield ("", node.name), node
        elif isinstance(node, ast.ClassDef):
            yield from (((node.name, one.name), one) for one in node.body if isinstance(one, FUNCTIONS))


def _calls(tree: ast.Module) -> Iterator[_Call]:
    for node in tree.body:
        owner = node.name if isinstance(node, ast.ClassDef) else ""
        yield from (_Call(one, owner) for one in ast.walk(node) if isinstance(one, ast.Call))


def _means(call: _Call, owner: str, name: str, defined: Iterable[str]) -> bool:
    """Whether a call may be one of a function: of this name, and on no object that is known to be of another class."""
    called = call.node.func
    if not owner:
        return isinstance(called, ast.Name) and called.id == name
    if not isinstance(called, ast.Attribute) or called.attr != name:
        return False
    receiver = called.value.id if isinstance(called.value, ast.Name) else ""
    if receiver in ("self", "cls"):
        return call.owner == owner or call.owner not in defined
    return receiver in (owner, "") or receiver not in defined


def _binds(call: _Call, owner: str, function: Function) -> bool:
    """Whether the arguments of a call fit; unpacked ones may be any."""
    node = call.node
    if any(isinstance(one, ast.Starred) for one in node.args) or any(one.arg is None for one in node.keywords):
        return True
    receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
    through_class = isinstance(receiver, ast.Name) and receiver.id == owner
    is_static, is_of_class = (one in _manner(function) for one in ("staticmethod", "classmethod"))
    instance = 1 if owner and not is_static and (is_of_class or not through_class) else 0
    try:
        signature_of(function.args).bind(
            *[None] * (instance + len(node.args)), **{str(one.arg): 1 for one in node.keywords}
        )
    except TypeError:
        return False
    return True
