"""An override in as few lines as its parent allows: a `super()` call and the statements around it."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from modular_converter.authoring.normal_form import normal
from modular_converter.model import lexer
from modular_converter.model.bindings import Bindings, Function, bindings_in, bindings_of, own_nodes, targets_of
from modular_converter.model.class_blocks import Member
from modular_converter.model.index import is_docstring
from modular_converter.model.members import SUPER_KWARGS
from modular_converter.model.nodes import parse
from modular_converter.model.overriding import is_super_statement


INDENT = " " * 8
_KINDS = frozenset(
    {"property", "cached_property", "classmethod", "staticmethod", "setter", "getter", "deleter", "overload"}
)
"""Decorators that turn a method into another kind of member."""


@dataclass(frozen=True)
class BodyLine:
    """A statement of a method's body with the comments and blank lines above it."""

    node: ast.stmt = field(compare=False)
    text: str

    @cached_property
    def key(self) -> str:
        """The key that equal statements share, with the blank line above."""
        return _key(self)

    @cached_property
    def bindings(self) -> Bindings:
        """What it does with names."""
        return bindings_of(self.node)

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets of an assignment; () for any other statement."""
        return targets_of(self.node)


@functools.lru_cache(maxsize=8192)  # the classes that one is compared with share most of their statements
def _key(line: BodyLine) -> str:
    return ("¶" if re.match(r"[ \t]*\n", line.text) else "") + normal(line.text) + ast.dump(line.node)


@dataclass(frozen=True, eq=False)
class MethodText:
    """A method cut into its header, docstring and statements."""

    function: Function
    decorators: str
    header: str
    docstring: str
    body: tuple[BodyLine, ...]
    footer: str

    @cached_property
    def keys(self) -> list[str]:
        """The keys of the statements."""
        return [line.key for line in self.body]

    @cached_property
    def returns(self) -> bool:
        """Whether it has a `return`."""
        return any(isinstance(node, ast.Return) for node in own_nodes(self.function))


@functools.lru_cache(maxsize=1024)  # a method is compared with many
def cut_method(member: Member) -> MethodText | None:
    """The parts of a method; None where two of them share a line."""
    function, lines = member.function, member.text.splitlines(keepends=True)
    offset = function.lineno - len(_before_def(member, lines)) - 1  # lines of the class above the text
    start = function.lineno - offset - 1
    if function.body[0].lineno == function.lineno:
        return None
    position = _header_end(function, lines, offset)
    header = "".join(lines[start:position])
    docstring = ""
    body: list[BodyLine] = []
    for node in function.body:
        end = (node.end_lineno or node.lineno) - offset
        if end <= position:
            return None
        text = "".join(lines[position:end])
        position = end
        if is_docstring(node) and not body and not docstring:
            docstring = text
        else:
            body.append(BodyLine(node, text))
    return MethodText(function, "".join(lines[:start]), header, docstring, tuple(body), "".join(lines[position:]))


def _before_def(member: Member, lines: Sequence[str]) -> list[str]:
    """The lines of the decorators."""
    decorators = member.function.decorator_list
    first = min((one.lineno for one in decorators), default=member.function.lineno)
    return list(lines[: member.function.lineno - first])


def _header_end(function: Function, lines: Sequence[str], offset: int) -> int:
    """The number of lines up to the colon of the header."""
    ends = [one.end_lineno or 0 for one in ast.walk(function.args) if isinstance(one, (ast.expr, ast.arg))]
    ends += [function.lineno, *([function.returns.end_lineno or 0] if function.returns else [])]
    position = max(ends) - offset
    while not re.search(r":\s*(#.*)?$", lines[position - 1]) or lines[position - 1].lstrip().startswith("#"):
        position += 1
    return position


def shorter_override(wanted: Member, parent: Member) -> str | None:
    """The text of an override that takes the parent's lines by `super()`; None if this saves nothing. It is a proposal:
    a merge with the parent decides whether it gives the wanted method.
    """
    own, inherited = cut_method(wanted), cut_method(parent)
    if own is None or inherited is None or not inherited.body or own.footer.strip() != inherited.footer.strip():
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
    lines = [one if one is not None else f"{INDENT}{returns}{call}\n" for one in body]
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
    if own.body and own.docstring and normal(own.docstring) == normal(inherited.docstring):
        text = text.replace(own.docstring, "", 1)
    if normal(own.decorators) == normal(inherited.decorators) and _is_plain(own.function):
        text = text.removeprefix(own.decorators)
    return text


def _is_plain(function: Function) -> bool:
    """Whether a method has no decorator that turns it into another kind of member, which a reader of an heir needs to
    see.
    """
    names = (ast.unparse(one).partition("(")[0].rpartition(".")[2] for one in function.decorator_list)
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
    mine, theirs = list(own.body), list(inherited.body)
    is_same_start = bool(mine) and bool(theirs) and mine[0].key == theirs[0].key
    if name == "__init__" and is_same_start and is_super_statement(theirs[0].node, name):
        mine.pop(0)
        theirs.pop(0)
    if inherited.returns:
        kept = len(mine) - len(theirs)
        if kept > 0 and [one.key for one in mine[kept:]] == [one.key for one in theirs]:
            return [*(one.text for one in mine[:kept]), None]
        return None
    return _merged_body(mine, theirs)


def _merged_body(mine: Sequence[BodyLine], theirs: Sequence[BodyLine]) -> list[str | None] | None:
    """The statements around the call of a method that returns nothing."""
    keys = {one.key for one in theirs}
    common = {one.key for one in mine} & keys
    if not common:
        return None
    targets = {target for one in mine if one.key not in keys for target in one.targets}
    removed: list[str] = []
    for one in theirs:
        if one.key in common or (one.targets and set(one.targets) <= targets):
            continue
        if not one.targets or not all(re.fullmatch(r"self\.\w+", target) for target in one.targets):
            return None
        removed += one.targets
    parents = {target for one in theirs for target in one.targets}
    repeated = _locals_for([one for one in mine if one.key not in common], mine)
    before: list[str] = []
    after: list[str] = []
    seen_common = False
    for one in mine:
        seen_common |= one.key in common
        if one.key in common and one.key not in repeated:
            continue
        (after if seen_common or set(one.targets) & parents else before).append(one.text)
    return [*before, None, *(f"{INDENT}del {target}\n" for target in removed), *after]


def _locals_for(written: list[BodyLine], mine: Sequence[BodyLine]) -> set[str]:
    """The keys of the assignments whose local names some statements read, directly or through other assignments."""
    needed: set[str] = set()
    read = [one.bindings.read_paths for one in written]
    while more := [one for one in mine if one.key not in needed and one not in written and _binds_any(one, read)]:
        needed.update(one.key for one in more)
        read = [one.bindings.read_paths for one in more]
    return needed


def _binds_any(line: BodyLine, names: Sequence[frozenset[str]]) -> bool:
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
