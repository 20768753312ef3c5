"""A class as its differences from a parent: the smallest body that, merged with the parent, gives the class, with overrides
in as few lines as the parent allows: a `super()` call and the statements around it.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from modular_converter.authoring.library_index import normal
from modular_converter.convert.inherit.build import merge_class, rename_class
from modular_converter.convert.inherit.statements import BODY_INDENT, Body, Line, body_of
from modular_converter.convert.source.library import ModelNames
from modular_converter.model import lexer
from modular_converter.model.bindings import Function, bindings_in, bindings_of, own_nodes
from modular_converter.model.class_blocks import INDENT, SUPER_KWARGS, ClassBlock, Member, lines_of, parse_class
from modular_converter.model.index import is_docstring
from modular_converter.model.nodes import decorators_of, is_super_statement, parse
from modular_converter.model.overriding import NO_DECORATORS, method_key
from modular_converter.rules.calls_of_super import STAY_AS_WRITTEN
from modular_converter.settings.values import Settings


_KINDS = frozenset(
    {"property", "cached_property", "classmethod", "staticmethod", "setter", "getter", "deleter", "overload"}
)
"""Decorators that turn a method into another kind of member, which a reader of an heir needs to see."""


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
        return [_key(line.whole) for line in self.body.lines]

    @cached_property
    def returns(self) -> bool:
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
        keyword = "async def" if isinstance(own.function, ast.AsyncFunctionDef) else "def"
        header = f"    {keyword} {own.function.name}({own.function.args.args[0].arg}, **{SUPER_KWARGS}):\n"
        call = f"{_awaited(own.function)}super().{own.function.name}(**{SUPER_KWARGS})"
    returns = "return " if inherited.returns else ""
    lines = [one if one is not None else f"{BODY_INDENT}{returns}{call}\n" for one in body]
    decorators = "" if normal(own.decorators) == normal(inherited.decorators) else own.decorators
    text = f"{decorators}{header}{docstring}{''.join(lines)}"
    if text.count("\n") >= wanted.text.count("\n") or _reads_locals_of_parent(text, wanted):
        return None
    return text


def full_override(wanted: Member, parent: Member, bases: Sequence[str]) -> str:
    """The text of an override with its whole body. Decorators and docstring are inherited if they are the parent's."""
    text = calling_base(wanted, bases)
    own, inherited = cut_method(wanted), cut_method(parent)
    if own is None or inherited is None:
        return text
    if own.body.lines and own.docstring and normal(own.docstring) == normal(inherited.docstring):
        text = text.replace(own.docstring, "", 1)
    kinds = (one.rpartition(".")[2] for one in decorators_of(own.function))
    if normal(own.decorators) == normal(inherited.decorators) and _KINDS.isdisjoint(kinds):
        text = text.removeprefix(own.decorators)
    return text


def _reads_locals_of_parent(text: str, wanted: Member) -> bool:
    """Whether an override reads a local name that only the parent's lines bind, which is right when merged but misleads
    a reader. The call of the parent's method reads parameters before these lines.
    """
    (short,) = parse(f"class _:\n{text}").body[0].body  # type: ignore[attr-defined]
    lines = bindings_of(*(one for one in short.body if f"super().{short.name}(" not in ast.unparse(one)))
    return not ((bindings_in(wanted.function).binds - bindings_in(short).binds).isdisjoint(lines.read_paths))


def calling_base(member: Member, bases: Sequence[str]) -> str:
    """The text of an override whose `super()` calls skip the parent: they are written `Base.method(self, …)`."""
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
        one
        for one in mine
        if _key(one.whole) not in needed
        and one not in written
        and any(not one.bindings.binds.isdisjoint(names) for names in read)
    ]:
        needed.update(_key(one.whole) for one in more)
        read = [one.bindings.read_paths for one in more]
    return needed


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


def _awaited(function: Function) -> str:
    return "await " if isinstance(function, ast.AsyncFunctionDef) else ""


_NO_DECORATORS = f"@{NO_DECORATORS}\n"


@dataclass(frozen=True)
class Heir:
    """A class of the modular file that inherits from a neighbour's."""

    text: str
    notes: tuple[str, ...]
    """The differences from the parent, a few words each."""
    imported: tuple[str, ...] = ()
    """Import statements of names that only modular files use."""
    exact: frozenset[str] = frozenset()
    """The parts that are written although the parent has them, but in another layout; see `other_layout`."""

    @property
    def lines(self) -> int:
        """Its lines, with the two empty ones behind it."""
        return self.text.count("\n") + 2

    @property
    def says_nothing(self) -> bool:
        """Whether it is `class X(Parent): pass`."""
        return not self.notes


@dataclass(frozen=True)
class ParentClass:
    """A class of a neighbour under its name in the target."""

    text: str
    name: str
    base: str
    """Its name in the heir."""
    no_inherit_module: str = ""
    """The module with `@no_inherit_decorator`; without it an heir cannot drop its parent's decorators."""


def heir_of(
    wanted: str,
    parent: ParentClass,
    names: ModelNames,
    settings: Settings,
    thorough: bool = True,
    exact: frozenset[str] = frozenset(),
) -> Heir | None:
    """The class `wanted` written as an heir of a parent; None where no heir gives it.

    Args:
        thorough: look for `super()` calls, and merge the result with the parent; else the heir is an estimate.
        exact: the parts to write in full, whatever the parent has; see `other_layout`.
    """
    try:
        own = parsed_class(wanted)
        if own.node.name != parent.name:
            text = rename_class(parent.text, parent.name, own.node.name, names)
            parent = replace(parent, text=text, name=own.node.name)
        inherited = parsed_class(parent.text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    more = [one for one in own.bases if one not in inherited.bases]  # they stand behind the parent, or before it
    for bases in [[parent.base, *more], [*more, parent.base]] if more else [[parent.base]]:
        full: frozenset[str] = frozenset()
        while (draft := _draft(wanted, parent, bases, full, exact)) is not None:
            wrong = _wrong_methods(draft.text, wanted, parent, names, settings) if thorough else frozenset()
            if not wrong:
                return draft
            if wrong <= full:
                break
            full |= wrong
    return None


def _wrong_methods(
    text: str, wanted: str, parent: ParentClass, names: ModelNames, settings: Settings
) -> frozenset[str]:
    """The keys of the methods that differ from the wanted class when an heir is merged with its parent. If something
    else differs, these are all methods; the empty key stands for a class without methods.
    """
    own = parsed_class(wanted)
    every = frozenset(member_key(one) for one in own.members if one.is_function) | {""}
    try:
        merged = merge_class(text, parent.text, parent.name, parent.base, names, settings)
        is_same = merged.text.rstrip("\n") == wanted.rstrip("\n")
        block = own if is_same else parse_class(merged.text)
    except (SyntaxError, ValueError, RecursionError):
        return every
    if any(one.finding.rule not in STAY_AS_WRITTEN for one in merged.findings):
        return every
    if same_class(block, own):
        return frozenset()
    made = members_by_key(block.members)
    wrong = (
        key for key, one in members_by_key(own.members).items() if key not in made or not same_member(made[key], one)
    )
    return frozenset(key for key in wrong if key in every) or every


def _draft(
    wanted: str, parent: ParentClass, bases: Sequence[str], full: frozenset[str], exact: frozenset[str]
) -> Heir | None:
    """The heir; None if the two classes cannot be merged.

    Args:
        full: the methods that are written without `super()`, by their keys.
        exact: see `heir_of`.
    """
    changes = _changes(wanted, parent.text, bool(parent.no_inherit_module), full, exact)
    if changes is None:
        return None
    notes = (*changes.notes, *["more bases"] * (len(bases) > 1))
    heading = f"class {parent.name}({', '.join((*bases, *changes.keywords))}):\n"
    text = f"{changes.decorators}{heading}{changes.body}"
    marker = f"from {parent.no_inherit_module} import {NO_DECORATORS}\n"
    return Heir(text, tuple(sorted(notes)), (marker,) if _NO_DECORATORS in text else (), exact)


@dataclass(frozen=True)
class _Changes:
    """The text of an heir without the names of its bases, and its differences from the parent in a few words each."""

    decorators: str
    keywords: tuple[str, ...]
    body: str
    notes: tuple[str, ...]


@functools.lru_cache(maxsize=1024)  # the classes of many models have the same words but for the names
def _changes(
    wanted: str, parent: str, can_lose_decorators: bool, full: frozenset[str], exact: frozenset[str]
) -> _Changes | None:
    """What an heir of the class `parent` writes to be the class `wanted`, both as texts; see `_draft`."""
    own, inherited = parsed_class(wanted), parsed_class(parent)
    keywords, theirs_too = (tuple(ast.unparse(one) for one in block.node.keywords) for block in (own, inherited))
    if (
        (theirs_too and not keywords)
        or not (_can_take(own.decorators, inherited.decorators) or can_lose_decorators)
        or not _can_take(own.docstring, inherited.docstring)
    ):
        return None
    same_decorators = DECORATORS not in exact and normal(own.decorators) == normal(inherited.decorators)
    decorators = "" if same_decorators else own.decorators or _NO_DECORATORS
    same_docstring = DOCSTRING not in exact and normal(own.docstring) == normal(inherited.docstring)
    docstring = "" if same_docstring else own.docstring
    notes = ["other decorators"] * bool(decorators) + ["other docstring"] * bool(docstring)
    keywords = () if keywords == theirs_too else keywords  # such as `total=False`
    notes += ["other keywords"] * bool(keywords)
    found = _members(own, inherited, can_lose_decorators, full, exact, bool(docstring))
    if found is None:
        return None
    members, more = found
    return _Changes(decorators, keywords, docstring + members or f"{INDENT}pass\n", (*notes, *more))


def _members(
    own: ClassBlock,
    inherited: ClassBlock,
    can_lose_decorators: bool,
    full: Collection[str],
    exact: frozenset[str],
    has_docstring: bool,
) -> tuple[str, list[str]] | None:
    """The members that the heir has to write, attributes first, and their differences from the parent in a few words each;
    None if the merge would not give those of the class.
    """
    mine, theirs = members_by_key(own.members), members_by_key(inherited.members)
    if len(mine) < sum(not one.carries_nothing for one in own.members) or not _is_reachable(mine, theirs):
        return None
    attributes, methods, notes = list[str](), list[str](), list[str]()
    repeated = _repeated(mine, theirs, has_docstring)
    for key, member in mine.items():
        place = theirs.get(key)
        if key not in exact and key != repeated and place is not None and same_member(member, place):
            continue
        if key in exact and place is not None and member.is_function:
            text: str | None = "\n" + calling_base(member, own.bases)
        else:
            text = written_member(member, place, key not in full, own.bases, can_lose_decorators)
        if text is None:
            return None
        notes.append(_note(key, place, text, member))
        (methods if member.is_function else attributes).append(text)
    for key in (one for one in theirs if one not in mine):
        removal = removal_of(key, theirs[key], own.node.name)
        if removal is None:
            return None
        notes.append(f"no {_name(key)}")
        (methods if theirs[key].is_function else attributes).append(removal)
    return "".join([*attributes, *methods]), notes


def _repeated(mine: Mapping[str, Member], theirs: Mapping[str, Member], has_docstring: bool) -> str:
    """The first attribute, if it is written although the parent has it, else "". The formatter puts an empty line
    behind a docstring, and none behind a class header. The first attribute of the heir would carry this line into the
    generated class.
    """
    other = (one for key, one in mine.items() if key not in theirs or not same_member(one, theirs[key]))
    first = next(other, None)
    if first is None or not first.is_attribute or has_blank_line(first) == has_docstring:
        return ""
    return next(iter(mine))


def _can_take(own: str, inherited: str) -> bool:
    """Whether an heir can have `own`, which may be nothing, where the parent has `inherited`."""
    return bool(own.strip()) or not inherited.strip()


def _name(key: str) -> str:
    return f"`{key.split(' ', 1)[1]}`"


def _is_reachable(mine: Mapping[str, Member], theirs: Mapping[str, Member]) -> bool:
    """Whether the order of the wanted members is the order of a merge: the parent's, then the new ones."""
    kept = [key for key in theirs if key in mine]
    merged = [*kept, *(key for key in mine if key not in theirs)]
    return sorted(merged, key=lambda key: (mine[key]).is_function) == list(mine)


def written_member(
    member: Member, place: Member | None, by_super: bool, bases: Sequence[str], can_lose_decorators: bool = False
) -> str | None:
    """The text of a member that the parent lacks or has in another form; None if the parent's would remain in effect."""
    if place is None or not member.is_function or not place.is_function:
        return (member.lead if place is None or not member.is_function else "\n") + member.text + member.documentation
    own, inherited = member.function, place.function
    loses = bool(inherited.decorator_list) and not own.decorator_list
    if normal(member.lead) != normal(place.lead) or (loses and not can_lose_decorators):
        return None
    if (own.returns is None and inherited.returns is not None) or (
        is_docstring(inherited.body[0]) and not is_docstring(own.body[0])
    ):
        return None
    short = shorter_override(member, place) if by_super else None
    return "\n" + (INDENT + _NO_DECORATORS) * loses + (short or full_override(member, place, bases))


def _note(key: str, place: Member | None, text: str, member: Member) -> str:
    if place is None:
        return f"new {_name(key)}"
    is_full = member.text.strip().endswith(text.strip()) or "super()" not in text
    return f"other {_name(key)}" if is_full else f"{_name(key)} by `super()`"


def removal_of(key: str, member: Member, name: str) -> str | None:
    """The statement that removes a member of the parent."""
    if member.is_attribute and len(member.binds) == 1:
        return f"{INDENT}{next(iter(member.binds))} = AttributeError()\n"
    if member.is_function and key == f"def {member.function.name}":
        return (
            f"\n{INDENT}def {member.function.name}(self):\n"
            f'{INDENT}{INDENT}raise AttributeError("Not needed for {name}")\n'
        )
    return None


DOCSTRING, DECORATORS = "docstring", "decorators"
"""The keys of these parts of a class among the keys of members; a space keeps them apart from names."""


@functools.lru_cache(maxsize=1024)  # a class is compared with many
def parsed_class(text: str) -> ClassBlock:
    """A class taken apart."""
    return parse_class(text)


def other_layout(wanted: str, made: str) -> frozenset[str]:
    """The parts of a class that a conversion has generated in other words or another layout: members by their keys,
    "docstring", "decorators". A parent's text keeps the line breaks and comments of its author.
    """
    own, other = parsed_class(wanted), parsed_class(made)
    theirs = members_by_key(other.members)
    found = [
        key
        for key, one in members_by_key(own.members).items()
        if key not in theirs or one.render().strip() != theirs[key].render().strip()
    ]
    found += [DOCSTRING] * (own.docstring.strip() != other.docstring.strip())
    return frozenset(found + [DECORATORS] * (own.decorators != other.decorators))


def same_class(one: ClassBlock, other: ClassBlock) -> bool:
    """Whether two classes are equal apart from their layout."""
    return (
        one.bases == other.bases
        and list(map(ast.dump, one.node.keywords)) == list(map(ast.dump, other.node.keywords))
        and normal(one.decorators) == normal(other.decorators)
        and normal(one.docstring) == normal(other.docstring)
        and len(one.members) == len(other.members)
        and all(map(same_member, one.members, other.members))
    )


def same_member(one: Member, other: Member) -> bool:
    """Whether two members differ in their layout at most. Most that do not differ have the same text, which needs no trees."""
    if (one.lead, one.text, one.documentation) == (other.lead, other.text, other.documentation):
        return True
    if not one.is_function and has_blank_line(one) != has_blank_line(other):
        return False
    return (
        normal(one.lead) == normal(other.lead)
        and normal(one.text + one.documentation) == normal(other.text + other.documentation)
        and ast.dump(one.node) == ast.dump(other.node)
    )


def has_blank_line(member: Member) -> bool:
    """Whether an empty line stands directly above a member."""
    return re.match(r"[ \t]*\n", member.lead) is not None


def members_by_key(members: Sequence[Member]) -> dict[str, Member]:
    """The members by key; of several with one key the first."""
    found: dict[str, Member] = {}
    for member in members:
        if not member.carries_nothing:
            found.setdefault(member_key(member), member)
    return found


def member_key(member: Member) -> str:
    """The kind of a member and what it defines: two members with one key take the same place in a class."""
    if member.is_function:
        return f"def {method_key(member.function)}"
    return f"set {' '.join(sorted(member.binds))}" if member.is_attribute else f"do {normal(member.text)}"
