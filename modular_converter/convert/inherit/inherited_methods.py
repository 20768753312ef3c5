"""The parent's methods that an override calls where lines cannot take the place of the call, within an expression or a
block, or where both cannot be one body: each stands in the generated class under a private name.

    class NewMLP(OldMLP):                               class NewMLP(nn.Module):
        def forward(self, x):                               def __inherited_forward(self, x):
            return 2 * super().forward(x)                       …

                                                            def forward(self, x):
                                                                return 2 * self.__inherited_forward(x)

Python keeps private names of several classes apart, so that heirs may do the same.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from modular_converter.findings import ClassFinding, Edit, Location, apply_edits, locate
from modular_converter.model.bindings import Function, own_nodes, signature_of
from modular_converter.model.class_blocks import INDENT, ClassBlock, Member, Method, class_node, inherited_name, taken
from modular_converter.model.nodes import decorated_by, decorators_of, dotted, parse, super_attribute
from modular_converter.model.overriding import first_parameter, mappings, starred


MADE_WITH_CLASS = frozenset({"__new__", "__init_subclass__", "__class_getitem__"})
"""Methods that Python makes static ones or those of the class by their names alone."""

CLASS_LEVEL = frozenset({"staticmethod", "classmethod"})

NAMELESS = CLASS_LEVEL | {"property"}
"""Decorators to which it does not matter what the method is called."""


def is_nameless(function: Function) -> bool:
    """Whether a method stays what it is under another name."""
    return NAMELESS.issuperset(decorators_of(function))


class _Call(NamedTuple):
    """`super().method` or `Parent.method`, called or read, which is written as `owner.<private name>`."""

    node: ast.Attribute
    owner: str
    """The instance, or the class itself."""


def with_inherited_methods(
    text: str, parent: ClassBlock, base: str, is_called: Callable[[str], bool], apart: Collection[str] = ()
) -> tuple[str, dict[str, str]]:
    """The child's text in which such calls have the private names of the parent's methods, and these names by method.

    Args:
        text: the class of the modular file.
        parent: its renamed parent.
        base: the parent's name in `text`.
        is_called: whether `super().<name>` in the generated class may reach a base from elsewhere, which is then meant.
        apart: the overrides that are not merged with the parent's method.
    """
    if "super" not in text and f"{base}." not in text:
        return text, {}
    node = class_node(text)
    found = [one for one in node.body if isinstance(one, Function)]
    theirs = _methods(parent)
    calls = [call for one in found for call in _calls(one, node.name, base, theirs, one.name not in apart)]
    # A statement means the parent's lines, whatever its bases have; those of `__init__` belong where a reader looks for them.
    meant = {call.node.attr for call in calls if call.owner == node.name} | ({*apart} - {"__init__"})
    called = dict.fromkeys(call.node.attr for call in calls)
    names = {name: inherited_name(name) for name in called if name in meant or not is_called(name)}
    if len({*names.values()}) < len(names):  # `call` and `__call__`
        return text, {}
    edits: list[Edit] = []
    for call in calls:
        owner, whole = (locate("", one, text) for one in (call.node.value, call.node))
        assert owner.end_line and owner.end_column and whole.end_line and whole.end_column
        if new := names.get(call.node.attr):
            start = whole.end_column - len(call.node.attr)
            edits.append(Edit(owner.line, owner.column, owner.end_line, owner.end_column, call.owner))
            edits.append(Edit(whole.end_line, start, whole.end_line, whole.end_column, new))
    return apply_edits(text, edits), names


def _methods(parent: ClassBlock) -> dict[str, Member]:
    """The methods of the parent that one definition is all of, of a property that which reads it. None that is abstract,
    or whose value is kept under its name.
    """
    found: dict[str, Member] = {}
    others: set[str] = set()
    for member in parent.members:
        if not member.is_function:
            others |= member.binds
        elif not decorated_by(member.function) and not _counts_by_name(member.function):
            found[member.function.name] = member
        elif not any(one.endswith((".setter", ".deleter")) for one in decorators_of(member.function)):
            others |= {decorated_by(member.function), member.function.name}
    return {name: one for name, one in found.items() if name not in others | MADE_WITH_CLASS}


def _counts_by_name(function: Function) -> bool:
    return any(
        one.startswith("abstract") or one == "cached_property"
        for one in (path.rpartition(".")[2] for path in decorators_of(function))
    )


def _calls(
    function: Function, class_name: str, base: str, theirs: Mapping[str, Member], is_merged: bool
) -> Iterator[_Call]:
    """What a method reads of the parent's methods, without the call that its body is merged at."""
    method = Method(function)
    replaced = method.replaced_call if is_merged else None
    merged = replaced.func if isinstance(replaced, ast.Call) else None
    nodes = own_nodes(function)
    own = "" if _rebinds(nodes, method.instance) else method.instance
    for node in nodes:
        if not isinstance(node, ast.Attribute) or node.attr not in theirs or node is merged:
            continue
        if super_attribute(node, class_name):
            assert isinstance(node.value, ast.Call)
            owner = ast.unparse(node.value.args[1]) if node.value.args[1:] else own
            if owner.isidentifier() and node.value.lineno == node.value.end_lineno:
                yield _Call(node, owner)
        # Methods of the class and static ones are the parent's, which the generated file imports.
        elif dotted(node.value) == base and not CLASS_LEVEL & {*decorators_of(theirs[node.attr].function)}:
            yield _Call(node, class_name)


def _rebinds(nodes: Iterable[ast.AST], name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name and not isinstance(one.ctx, ast.Load) for one in nodes)


def refused_overrides(child: ClassBlock, parent: ClassBlock, findings: Iterable[ClassFinding]) -> frozenset[str]:
    """The overrides that cannot be merged with the parent's method, and whose call would succeed with inheritance."""
    lines = {getattr(one.node, "lineno", 0) for one in findings if one.diagnose(Location("")).is_error}
    theirs = _methods(parent) if lines else {}
    functions = (one.function for one in child.members if one.is_function and one.function.name in theirs)
    return frozenset(
        one.name
        for one in functions
        if not lines.isdisjoint(range(one.lineno, (one.end_lineno or one.lineno) + 1))
        and _may_succeed(Method(one).replaced_call, theirs[one.name].function)
    )


def _may_succeed(call: ast.expr | None, function: Function) -> bool:
    """Whether a method can be called with these arguments."""
    if not isinstance(call, ast.Call):
        return False
    signature = signature_of(function.args)
    unpacks = bool(starred(call) or mappings(call))
    positional = [one for one in call.args if not isinstance(one, ast.Starred)]
    named = {one.arg: one.value for one in call.keywords if one.arg}
    instance = [call.func] if first_parameter(function) else []
    try:
        (signature.bind_partial if unpacks else signature.bind)(*instance, *positional, **named)
    except TypeError:
        return bool(function.decorator_list)  # which may take other arguments
    return True


def with_private_methods(parent: ClassBlock, child: ClassBlock, names: Mapping[str, str]) -> ClassBlock:
    """The parent with methods under their private names, too: by their own lines, or by an assignment where the child does not
    override them, and where a decorator may read the name.
    """
    theirs = _methods(parent) if names else {}
    members: list[Member] = []
    for member in parent.members:
        name = member.function.name if member.is_function else ""
        new = names.get(name) if theirs.get(name) is member else None
        if not new:
            members.append(member)
        elif is_nameless(member.function) and name in child.binds:
            members += [_renamed(member, new), replace(member, lead="\n")]
        else:
            members += [member, _other_name(member, new)]
    return replace(parent, members=tuple(members))


def _other_name(member: Member, new: str) -> Member:
    """A further name for a method."""
    text = f"{INDENT}{new} = {member.function.name}\n"
    return Member(
        parse(text.strip()).body[0], "", text, is_own=False, merged=(taken(text, False, member.function.lineno),)
    )


def _renamed(member: Member, new: str) -> Member:
    """A method under another name."""
    node = copy.copy(member.function)
    node.name = new
    text = re.sub(rf"(?m)^(\s*(?:async\s+)?def\s+){member.function.name}\b", rf"\g<1>{new}", member.text, count=1)
    return replace(member, node=node, text=text)
