"""An override in as few lines as its parent allows: a `super()` call and the statements around it."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from modular_converter.authoring.normal_form import normal
from modular_converter.convert.inherit.statements import BODY_INDENT, Body, Line, body_of
from modular_converter.model import lexer
from modular_converter.model.bindings import Function, bindings_in, bindings_of, own_nodes
from modular_converter.model.class_blocks import SUPER_KWARGS, Member, lines_of
from modular_converter.model.nodes import decorators_of, is_super_statement, parse


_KINDS = frozenset(
    {"property", "cached_property", "classmethod", "staticmethod", "setter", "getter", "deleter", "overload"}
)
"""Decorators that turn a method into another kind of member."""


@dataclass(frozen=True, eq=False)
class MethodText:
    """A method taken apart, with the keys by which its parts are compared."""

    function: Function
    decorators: str
    header: str
    """The signature up to the colon."""
    body: Body

    @property
    def docstring(self) -> str:
        """Its docstring; "" without one."""
        return self.body.docstring.whole if self.body.docstring is not None else ""

    @cached_property
    def keys(self) -> list[str]:
        """The keys of the statements."""
        return [_key(line.whole) for line in self.body.lines]

    @cached_property
    def returns(self) -> bool:
        """Whether it has a `return`."""
        return any(isinstance(node, ast.Return) for node in own_nodes(self.function))


@functools.lru_cache(maxsize=8192)  # the classes that one is compared with share most of their statements
def _key(statement: str) -> str:
    """The key that equal statements share, with the blank line above."""
    mark = "¶" if re.match(r"[ \t]*\n", statement) else ""
    return mark + normal(statement) + ast.dump(parse(f"if _:\n{statement}"))


@functools.lru_cache(maxsize=1024)  # a method is compared with many
def cut_method(member: Member) -> MethodText | None:
    """The parts of a method; None where two of them share a line."""
    function = member.function
    ends = [function.lineno, *(node.end_lineno or 0 for node in function.body)]
    if any(node.lineno == end for node, end in zip(function.body, ends)):
        return None
    body = body_of(member)
    lines = lines_of(body.header.text)
    above = function.lineno - member.line
    return MethodText(function, "".join(lines[:above]), "".join(lines[above:]), body)


def shorter_override(wanted: Member, parent: Member) -> str | None:
    """The text of an override that takes the parent's lines by `super()`; None if this saves nothing. It is a proposal:
    a merge with the parent decides whether it gives the wanted method.
    """
    own, inherited = cut_method(wanted), cut_method(parent)
    if own is None or inherited is None or not inherited.body.lines:
        return None
    if own.body.footer.text.strip() != inherited.body.footer.text.strip():
        return None
    body = _body(own, inherited)
    if body is None:
        return None
    docstring = "" if normal(own.docstring) == normal(inherited.docstring) else own.docstring
    same_signature = normal(own.header) == normal(inherited.header)
    header, call = own.header, _call(inherited, own)
    if same_signature and body == [None] and own.header.count("\n") > 1 and own.function.args.args:
        header = f"    {_def(own.function)} {own.function.name}({own.function.args.args[0].arg}, **{SUPER_KWARGS}):\n"
        call = f"{_awaited(own.function)}super().{own.function.name}(**{SUPER_KWARGS})"
    returns = "return " if inherited.returns else ""
    lines = [one if one is not None else f"{BODY_INDENT}{returns}{call}\n" for one in body]
    decorators = "" if normal(own.decorators) == normal(inherited.decorators) else own.decorators
    text = f"{decorators}{header}{docstring}{''.join(lines)}"
    if text.count("\n") >= wanted.text.count("\n") or _reads_locals_of_parent(text, wanted):
        return None
    return text


def full_override(wanted: Member, parent: Member, bases: Sequence[str]) -> str:
    """The text of an override with its whole body. Decorators and docstring are inherited if they are the parent's.

    Args:
        bases: the bases of the generated class.
    """
    text = calling_base(wanted, bases)
    own, inherited = cut_method(wanted), cut_method(parent)
    if own is None or inherited is None:
        return text
    if own.body.lines and own.docstring and normal(own.docstring) == normal(inherited.docstring):
        text = text.replace(own.docstring, "", 1)
    if normal(own.decorators) == normal(inherited.decorators) and _is_plain(own.function):
        text = text.removeprefix(own.decorators)
    return text


def _is_plain(function: Function) -> bool:
    """Whether a method has no decorator that turns it into another kind of member, which a reader of an heir needs to
    see.
    """
    names = (one.rpartition(".")[2] for one in decorators_of(function))
    return _KINDS.isdisjoint(names)


def _reads_locals_of_parent(text: str, wanted: Member) -> bool:
    """Whether an override reads a local name that only the parent's lines bind, which is right when merged but misleads
    a reader. The call of the parent's method reads parameters before these lines.
    """
    (short,) = parse(f"class _:\n{text}").body[0].body  # type: ignore[attr-defined]
    lines = bindings_of(*(one for one in short.body if f"super().{short.name}(" not in ast.unparse(one)))
    return not ((bindings_in(wanted.function).binds - bindings_in(short).binds).isdisjoint(lines.read_paths))


def calling_base(member: Member, bases: Sequence[str]) -> str:
    """The text of an override whose `super()` calls skip the parent: they are written `Base.method(self, …)`.

    Args:
        bases: the bases of the generated class.
    """
    name, arguments = member.function.name, member.function.args.args
    if not bases or not arguments or f"super().{name}(" not in member.text:
        return member.text
    pattern = re.compile(rf"\bsuper\(\)\.{re.escape(name)}\((\)?)")
    call = f"{bases[0]}.{name}({arguments[0].arg}"
    found = pattern.finditer(lexer.code_only(member.text))
    return lexer.replace_spans(member.text, ((*one.span(), call + (")" if one[1] else ", ")) for one in found))


def _body(own: MethodText, inherited: MethodText) -> list[str | None] | None:
    """The statements of the override, with None in place of the call; None if the parent's lines are of no use."""
    if own.keys == inherited.keys:
        return [None]
    name = own.function.name
    mine, theirs = list(own.body.lines), list(inherited.body.lines)
    is_same_start = bool(mine) and bool(theirs) and _key(mine[0].whole) == _key(theirs[0].whole)
    if name == "__init__" and is_same_start and is_super_statement(theirs[0].node, name):
        mine.pop(0)
        theirs.pop(0)
    if inherited.returns:
        kept = len(mine) - len(theirs)
        if kept > 0 and [_key(one.whole) for one in mine[kept:]] == [_key(one.whole) for one in theirs]:
            return [*(one.whole for one in mine[:kept]), None]
        return None
    return _merged_body(mine, theirs)


def _merged_body(mine: Sequence[Line], theirs: Sequence[Line]) -> list[str | None] | None:
    """The statements around the call of a method that returns nothing."""
    keys = {_key(one.whole) for one in theirs}
    common = {_key(one.whole) for one in mine} & keys
    if not common:
        return None
    targets = {target for one in mine if _key(one.whole) not in keys for target in one.targets}
    removed: list[str] = []
    for one in theirs:
        if _key(one.whole) in common or (one.targets and set(one.targets) <= targets):
            continue
        if not one.targets or not all(re.fullmatch(r"self\.\w+", target) for target in one.targets):
            return None
        removed += one.targets
    parents = {target for one in theirs for target in one.targets}
    repeated = _locals_for([one for one in mine if _key(one.whole) not in common], mine)
    before: list[str] = []
    after: list[str] = []
    seen_common = False
    for one in mine:
        seen_common |= _key(one.whole) in common
        if _key(one.whole) in common and _key(one.whole) not in repeated:
            continue
        (after if seen_common or set(one.targets) & parents else before).append(one.whole)
    return [*before, None, *(f"{BODY_INDENT}del {target}\n" for target in removed), *after]


def _locals_for(written: list[Line], mine: Sequence[Line]) -> set[str]:
    """The keys of the assignments whose local names some statements read, directly or through other assignments."""
    needed: set[str] = set()
    read = [one.bindings.read_paths for one in written]
    while more := [
        one for one in mine if _key(one.whole) not in needed and one not in written and _binds_any(one, read)
    ]:
        needed.update(_key(one.whole) for one in more)
        read = [one.bindings.read_paths for one in more]
    return needed


def _binds_any(line: Line, names: Sequence[frozenset[str]]) -> bool:
    """Whether an assignment binds one of some local names."""
    return any(not line.bindings.binds.isdisjoint(some) for some in names)


def _call(parent: MethodText, child: MethodText) -> str:
    """The call of the parent's method with the arguments for which the child has names."""
    arguments, own = parent.function.args, child.function.args
    known = {one.arg for one in (*own.posonlyargs, *own.args, *own.kwonlyargs)}
    names = [one.arg for one in (*arguments.posonlyargs, *arguments.args)][1:]
    given = []
    skipped = False
    for name in names:
        if name in known:
            given.append(f"{name}={name}" if skipped else name)
        else:
            skipped = True
    given += [f"*{arguments.vararg.arg}"] if arguments.vararg and own.vararg else []
    given += [f"{one.arg}={one.arg}" for one in arguments.kwonlyargs if one.arg in known]
    given += [f"**{own.kwarg.arg}"] if arguments.kwarg and own.kwarg else []
    return f"{_awaited(child.function)}super().{child.function.name}({', '.join(given)})"


def _def(function: Function) -> str:
    return "async def" if isinstance(function, ast.AsyncFunctionDef) else "def"


def _awaited(function: Function) -> str:
    return "await " if isinstance(function, ast.AsyncFunctionDef) else ""
