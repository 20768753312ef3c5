"""A class as a list of members, each with its own lines of text and the names that it binds.

`ast` says where each statement begins and ends, so that members which nobody touches keep their bytes.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from modular_converter.findings import character_column
from modular_converter.model.bindings import FUNCTIONS, Bindings, Function, bindings_of
from modular_converter.model.index import end_with_footer, first_line, is_docstring
from modular_converter.model.members import class_node
from modular_converter.model.nodes import parse, walk, written


INDENT = "    "


class SourceLines(NamedTuple):
    """Lines of a class of the modular file, or of its renamed parent, both counted from 1 within the class."""

    is_own: bool
    """Whether they are the heir's."""
    first: int
    last: int


class ClassSpan(NamedTuple):
    """Whole lines of a generated class; the spans of a class in order are its text."""

    text: str
    sources: tuple[SourceLines, ...] = ()
    """The lines that it was made from, the most important first; none for lines that the merge adds."""


def taken(text: str, is_own: bool, line: int) -> ClassSpan:
    """Lines that stay as they are; `line` is the first of them in their class."""
    return ClassSpan(text, (SourceLines(is_own, line, line + text.count("\n") - 1),))


@dataclass(frozen=True, eq=False)
class Member:
    """One statement of a class body."""

    node: ast.stmt
    lead: str
    """The blank lines and comments above it, whole lines, each with its newline."""
    text: str
    """Its whole lines, decorators and trailing comments included; ends with a newline."""
    line: int = 1
    """The line of the class that its text begins with, from 1."""
    documentation: str = ""
    """The strings directly below an attribute, whole lines with the comments above them."""
    inherited_reads: frozenset[str] = frozenset()
    """For an override: the names that its lines from the parent read."""
    is_own: bool = True
    """Whether it stands in the class of the modular file, not in the parent."""
    merged: tuple[ClassSpan, ...] = ()
    """For a member that the merge has made or completed: all its spans."""

    @property
    def is_function(self) -> bool:
        """Whether it is a method."""
        return isinstance(self.node, FUNCTIONS)

    @property
    def function(self) -> Function:
        """The method that it is."""
        assert isinstance(self.node, FUNCTIONS)
        return self.node

    @property
    def is_attribute(self) -> bool:
        """Whether it is an assignment."""
        return isinstance(self.node, (ast.Assign, ast.AnnAssign))

    @property
    def may_be_skipped(self) -> bool:
        """Whether its names are bound only on a condition: below `if`, `for`, `while`, `try` or `match`."""
        certain = (*FUNCTIONS, ast.ClassDef, ast.With)
        return isinstance(self.node, ast.Match) or (hasattr(self.node, "body") and not isinstance(self.node, certain))

    @cached_property
    def bindings(self) -> Bindings:
        """What it does with names."""
        return bindings_of(self.node)

    @property
    def reads(self) -> frozenset[str]:
        """The names that it reads while the body of the class is executed."""
        return self.bindings.reads | self.inherited_reads

    @property
    def binds(self) -> frozenset[str]:
        """All names that it binds."""
        return frozenset((self.function.name,)) if self.is_function else self.bindings.local

    @property
    def touches(self) -> frozenset[str]:
        """The names that it binds, and those whose objects it may change."""
        return self.binds | self.bindings.reads if self.bindings.may_change_objects else self.binds

    @property
    def carries_nothing(self) -> bool:
        """Whether it has no effect: `pass`, `...`, a constant, a name, an annotation of nothing."""
        value = self.node.value if isinstance(self.node, ast.Expr) else None
        return isinstance(self.node, ast.Pass) or isinstance(value, (ast.Constant, ast.Name, ast.Attribute))

    @property
    def spans(self) -> tuple[ClassSpan, ...]:
        """Its lead, its text and its documentation."""
        return self.merged or (self.lead_span, self.text_span, self.documentation_span)

    @property
    def lead_span(self) -> ClassSpan:
        """The lines above it."""
        return taken(self.lead, self.is_own, self.line - self.lead.count("\n"))

    @property
    def text_span(self) -> ClassSpan:
        """Its own lines."""
        return taken(self.text, self.is_own, self.line)

    @property
    def documentation_span(self) -> ClassSpan:
        """The lines below it."""
        return taken(self.documentation, self.is_own, self.line + self.text.count("\n"))

    def render(self) -> str:
        """The text of the member, with its lead and its documentation."""
        return self.lead + self.text + self.documentation


class ClassChange(NamedTuple):
    """A statement below a class that changes it."""

    node: ast.stmt
    text: str
    """Its whole lines, with the blank lines and comments above it; ends with a newline."""
    line: int
    """The line that `text` begins with, where the class begins with line 1."""
    binds_anew: bool = False
    """Whether it gives the name of the class to something else, on some condition at least."""

    @property
    def attribute(self) -> str:
        """`x` of `Class.x = value` or `setattr(Class, "x", value)`; "" for another change."""
        return self._sets[0]

    @property
    def makes_object(self) -> bool:
        """Whether the value that it sets may be an object that only this statement makes."""
        made = (ast.Call, ast.Dict, ast.List, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.Lambda)
        return any(isinstance(node, made) for node in walk(self._sets[1]))

    @property
    def decorator(self) -> str:
        """`f` of `Class = f(Class)`; "" for another change."""
        match self.node:
            case ast.Assign([ast.Name(name)], ast.Call(called, [ast.Name(given)], [])) if name == given:
                return written(called)
        return ""

    @property
    def _sets(self) -> tuple[str, ast.AST]:
        match self.node:
            case ast.Assign([ast.Attribute(ast.Name(), name)], value):
                return name, value
            case ast.Expr(ast.Call(ast.Name("setattr"), [ast.Name(), ast.Constant(str() as name), value], [])):
                return name, value
        return "", self.node


def changes_below(text: str) -> tuple[ClassChange, ...]:
    """The statements that are joined to a class, in order."""
    lines = lines_of(text)
    end = _end(text, lines)
    if not any(map(str.strip, lines[end:])):
        return ()
    moved = len(block_lines(text)[1]) - len(lines)
    found: list[ClassChange] = []
    name = class_node(text).name
    for node in parse(text).body[1:]:
        last = node.end_lineno or 0
        binds_anew = name in bindings_of(node).binds
        found.append(ClassChange(node, "".join(lines[end:last]), end + 1 + moved, binds_anew))
        end = last
    return tuple(found)


@dataclass(frozen=True)
class ClassBlock:
    """A class taken apart."""

    node: ast.ClassDef
    decorators: str
    """The lines of its decorators, with the comments between them."""
    docstring: str
    """The lines of its docstring, with those above it; "" without one."""
    members: tuple[Member, ...]
    body_line: int
    """The line of the class that its body begins with, from 1, with the comments above its first statement."""

    @property
    def bases(self) -> list[str]:
        """Its bases as text."""
        return [written(base) for base in self.node.bases]

    @cached_property
    def binds(self) -> frozenset[str]:
        """The names that its members bind."""
        return frozenset[str]().union(*(member.binds for member in self.members))

    @cached_property
    def binds_anew(self) -> frozenset[str]:
        """The names that its members bind without a `super()` call: nothing of a parent's member is left."""
        return frozenset[str]().union(*(member.binds for member in self.members if "super(" not in member.text))

    def leaves(self, change: ClassChange, inherited: Set[str]) -> bool | None:
        """Whether this class, an heir, has what a change of its parent sets: False if a member of it comes first; None if
        one body cannot say it. A class that is bound anew by a call, as by a decorator, stands for an heir that overrides none
        of the members `inherited`; one that is bound anew otherwise, for an heir without any members.
        """
        if change.binds_anew:
            has_members = not all(one.carries_nothing for one in self.members)
            is_apart = not self.decorators and self.binds.isdisjoint(inherited)
            return True if not has_members or (is_apart and bool(change.decorator)) else None
        members = [one for one in self.members if change.attribute in one.binds]
        if not change.attribute or any("super" in one.text for one in members):
            return None
        return not members


def parse_class(text: str, is_own: bool = True) -> ClassBlock:
    """Take a class at the top level of a module apart. Its body is given back with an indentation of four spaces.
    `is_own` says whether it is the class of the modular file, or the parent of one.
    """
    node, lines = block_lines(text)
    end = first_line(node.body[0], lines) - 1
    # Comments between the header and the body belong to the first member.
    while not lines[end - 1].strip() or lines[end - 1].lstrip().startswith("#"):
        end -= 1
    statements = (Member(*one, is_own=is_own) for one in cut_block(node.body, lines, end, INDENT))
    members = _with_documentation(statements)
    docstring = members.pop(0).render() if members and is_docstring(members[0].node) else ""
    decorators = "".join(lines[first_line(node, lines) - 1 : node.lineno - 1])
    return ClassBlock(node, decorators, docstring, tuple(members), end + 1)


def block_lines(text: str) -> tuple[ast.ClassDef, list[str]]:
    """The syntax tree of a class and its lines, in which the members of `parse_class` count their lines, with those of the
    changes below it.
    """
    node, lines, changes = _parse(text)
    first = node.body[0]
    if lines[first_line(first, lines) - 1][: first.col_offset] != INDENT:
        from modular_converter.model.indentation import with_standard_indentation

        node, lines, _ = _parse(with_standard_indentation("".join(lines), INDENT))
    return node, [*lines, *changes]


def lines_of(text: str) -> list[str]:
    """The lines of a text. Not `splitlines`: form feeds and Unicode separators end no line of Python."""
    return [line + "\n" for line in text.removesuffix("\n").split("\n")]


def _end(text: str, lines: list[str]) -> int:
    """The number of lines of the class that a text begins with, with the comments at its end."""
    return end_with_footer(lines, class_node(text).end_lineno or 0, len(lines), 0)


def _parse(text: str) -> tuple[ast.ClassDef, list[str], list[str]]:
    """The syntax tree of a class and its lines, with a body that begins on a line of its own, and the lines of the changes
    below it.
    """
    lines = lines_of(text)
    node, end = class_node(text), _end(text, lines)
    if any(map(str.strip, lines[end:])):
        return (*_parse("".join(lines[:end]))[:2], lines[end:])
    first = node.body[0]
    row = lines[first.lineno - 1]
    start = character_column(row, first.col_offset)
    if row[:start].strip() and not getattr(first, "decorator_list", None):
        lines[first.lineno - 1] = f"{row[:start].rstrip()}\n{INDENT}{row[start:]}"
        return _parse("".join(lines))
    return node, lines, []


class CutStatement(NamedTuple):
    """A statement of a block; see `Member`."""

    node: ast.stmt
    lead: str
    text: str
    line: int


def cut_block(nodes: Sequence[ast.stmt], lines: list[str], start: int, indentation: str) -> Iterator[CutStatement]:
    """Cut the lines from `start` (from 0) on into the statements of a block; those that share a line are parted."""
    for node, following in itertools.zip_longest(nodes, nodes[1:]):
        first, end = first_line(node, lines) - 1, node.end_lineno or 0
        if following is not None and first_line(following, lines) == end:
            row = lines[end - 1]
            row = row[: character_column(row, node.end_col_offset or 0)]
            last, rows = end, [*lines[first : end - 1], row + "\n"]
        else:
            limit = first_line(following, lines) - 1 if following else len(lines)
            last = end_with_footer(lines, end, limit, len(indentation))
            rows = lines[first:last]
        if first < start:  # behind a semicolon, or behind the colon of the block
            rows[0] = indentation + rows[0][character_column(rows[0], node.col_offset) :]
        yield CutStatement(node, "".join(lines[start:first]), "".join(rows), first + 1)
        start = last


def _with_documentation(members: Iterable[Member]) -> list[Member]:
    """The members, with the strings that stand directly below an attribute as its documentation."""
    found: list[Member] = []
    for member in members:
        has_blank_line = any(not line.strip() for line in member.lead.split("\n")[:-1])
        if found and is_docstring(member.node) and not has_blank_line and found[-1].is_attribute:
            documentation = found[-1].documentation + member.lead + member.text
            found[-1] = replace(found[-1], documentation=documentation)
        else:
            found.append(member)
    return found
