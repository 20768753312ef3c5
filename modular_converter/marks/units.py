"""The comments that name the origin of a copy (`# Copied from transformers.models.bert.modeling_bert.BertLayer with A->B`);
a definition as its header and the statements of its body, and whether a copy equals its source but for what `# Ignore copy` allows."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from modular_converter.findings import UNPARSABLE, split_lines
from modular_converter.model import lexer
from modular_converter.model.index import end_with_footer, first_line
from modular_converter.model.nodes import parse


_PATH = r"(?P<path>[A-Za-z_]\w*(?:\.\w+)*)"
_LOOSE = re.compile(rf"copied\s+from:?\s+`?{_PATH}`?(?P<rest>.*)", re.IGNORECASE)
_ALL_CASING = "all-casing"
MOST_REPLACEMENTS = 100
"""The most replacements of one mark; each searches the whole source."""
_IGNORE = re.compile(r"#\s*Ignore copy\b")
_END = re.compile(r"[ \t]*#[ \t]*End copy\b")
_BELOW = re.compile(r"[ \t]*(?:async[ \t]+def|def|class)\b")


@dataclass(frozen=True)
class Replacement:
    """A replacement such as `Bert->Roberta`: the source's text and the copy's."""

    old: str
    new: str
    all_casing: bool = False
    """Whether `bert->roberta` and `BERT->ROBERTA` are meant, too."""

    def apply(self, text: str, limit: int) -> str:
        """The text after the replacement; "" if it would have more than `limit` characters."""
        pairs = [(self.old, self.new)]
        if self.all_casing:
            pairs += [(self.old.lower(), self.new.lower()), (self.old.upper(), self.new.upper())]
        for old, new in pairs:
            if len(text) + text.count(old) * len(new) > limit:  # `a->aa` ten times makes a thousand of each
                return ""
            text = text.replace(old, new)
        return text


@dataclass(frozen=True)
class CopyMark:
    """One comment."""

    line: int
    column: int
    """The line and column of the `#`, both from 1."""
    text: str
    source: str
    """The dotted name of the definition that is copied, with its package."""
    replacements: tuple[Replacement, ...] = ()
    """The replacements, except those with blanks such as `Deformable DETR->Grounding DINO`."""
    flaw: str = ""
    """The reason why a checker that looks for the exact form does not see it; "" for a valid mark."""


def find_marks(text: str, beginning: str, package: str) -> list[CopyMark]:
    """The marks of a text, and the comments that were meant to be marks, in order.

    Args:
        beginning: how a mark begins: `Copied from`.
        package: the package that its dotted name begins with.
    """
    if not re.search(r"copied\s+from", text, re.IGNORECASE):
        return []
    lines = text.split("\n")
    found = (
        _mark(
            text[token.start : token.end],
            lines,
            line + 1,
            column + 1,
            beginning,
            package,
        )
        for token, line, column in lexer.placed_tokens(text)
        if token.kind == "comment"
    )
    return [mark for mark in found if mark is not None]


def _mark(comment: str, lines: list[str], line: int, column: int, beginning: str, package: str) -> CopyMark | None:
    comment = comment.rstrip()
    found = _LOOSE.search(comment)
    if found is None or not _is_meant(found["path"].rstrip("."), found["rest"], package):
        return None
    replacements, unread = _replacements(found["rest"])
    before = comment[: found.start()].lstrip("#").strip()
    flaw = (
        _flaw_of_form(comment, before, found["path"], beginning, package)
        or unread
        or _flaw_of_place(lines, line, column)
    )
    return CopyMark(line, column, comment, found["path"], replacements, flaw)


def _is_meant(path: str, rest: str, package: str) -> bool:
    """Whether a comment is a mark, valid or not, rather than a sentence with the words `copied from`."""
    first = path.partition(".")[0]
    if first == package or (".models." in path and path.count(".") > 2):
        return True
    return not rest.strip() and path[0].isupper() and not path.isupper()  # `copied from LlamaAttention`


def _flaw_of_form(comment: str, before: str, path: str, beginning: str, package: str) -> str:
    if before:
        return f"words stand before `{beginning}`"
    if not re.match(rf"#[ \t]*{re.escape(beginning)} ", comment):
        return f"it is not spelt `# {beginning} `"
    if not path.startswith(f"{package}."):
        return f"its path does not begin with `{package}.`"
    return ""


def _flaw_of_place(lines: list[str], line: int, column: int) -> str:
    if lines[line - 1][: column - 1].strip():
        return "it stands behind code"
    below = lines[line] if line < len(lines) else ""
    indentation = len(below) - len(below.lstrip())
    if _BELOW.match(below) and indentation == column - 1:
        return ""
    if below.lstrip().startswith("@"):
        return "it stands above a decorator and not directly above the definition"
    return "it does not stand directly above a definition"


def _replacements(rest: str) -> tuple[tuple[Replacement, ...], str]:
    """The text behind the path: the replacements that can be read, and the reason if some cannot."""
    words = rest.strip()
    if not words:
        return (), ""
    if not words.startswith("with "):
        return (), f"`{words}` stands behind the path without `with`" if "->" in words else ""
    found: list[Replacement] = []
    for piece in words.split(","):
        pair, *options = piece.strip().removeprefix("with ").split() or [""]
        old, arrow, new = pair.partition("->")
        if old and arrow and new:
            found.append(Replacement(old, new, _ALL_CASING in options))
    flaw = f"it has more than {MOST_REPLACEMENTS} replacements" if len(found) > MOST_REPLACEMENTS else ""
    return tuple(found), flaw


def is_ignored(lines: list[str]) -> bool:
    """Whether a comment `# Ignore copy` in some lines lets the copy differ there."""
    return any(_IGNORE.search(line) for line in lines)


def without_ignored(line: str) -> str:
    """A line without a comment `# Ignore copy`."""
    return line[: match.start()].rstrip() if (match := _IGNORE.search(line)) else line


def mark_lines(lines: list[str], beginning: str) -> Iterator[int]:
    pattern = re.compile(rf"[ \t]*#[ \t]*{re.escape(beginning)} ")
    return (number for number, line in enumerate(lines) if pattern.match(line))


Definition: TypeAlias = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_HEAD = re.compile(r"\A((?:async[ \t]+def|def|class)[ \t]+)(\w+)")


@dataclass(frozen=True)
class BodyUnit:
    """A statement of a body."""

    name: str
    """The name or target that it binds; "" for any other statement."""
    lines: tuple[str, ...]
    """Its lines without the definition's indentation; the comments and blank lines above it come first."""
    is_method: bool
    is_ignored: bool
    """Whether `# Ignore copy` lets it differ: somewhere in it or, between two methods, in a statement beside it."""
    marks: tuple[str, ...] = ()
    """The lines above its `def` that are marks; they are not among `lines`."""


@dataclass(frozen=True)
class DefinitionUnits:
    """A definition, without its decorators."""

    header: tuple[str, ...]
    body: tuple[BodyUnit, ...]
    is_class: bool

    @property
    def text(self) -> str:
        """The definition at the top level of a module."""
        lines = (*self.header, *(line for unit in self.body for line in unit.lines))
        return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True)
class DefinitionLines:
    """Where a definition stands in a file."""

    name: str
    """Its dotted name in the file."""
    first: int
    """The line of its `def` or `class`, from 1: decorators do not belong to it."""
    last: int


def definition_places(text: str) -> list[DefinitionLines]:
    """All definitions of a module. Raises what `ast.parse` does."""
    lines = text.split("\n")
    found = _definitions(parse(text).body, "")
    return [DefinitionLines(name, node.lineno, last_line(node, lines)) for name, node in found]


def _definitions(body: Sequence[ast.AST], above: str) -> Iterator[tuple[str, Definition]]:
    """The definitions of some statements by their dotted names, also those below `if`, `try` and the like."""
    for node in body:
        if isinstance(node, _DEFINITIONS):
            yield f"{above}{node.name}", node
            yield from _definitions(node.body, f"{above}{node.name}.")
        else:
            for inner in ("body", "orelse", "handlers", "finalbody", "cases"):
                yield from _definitions(getattr(node, inner, []), above)


def last_line(node: Definition, lines: list[str]) -> int:
    """The last line of a definition, with the comments below it that are indented deeper."""
    return end_with_footer(lines, node.end_lineno or node.lineno, len(lines), node.col_offset)


def end_of_copy(text: str, place: DefinitionLines) -> int:
    """The last line of a definition that is compared: the line above `# End copy`, if this stands between two of its
    statements.
    """
    lines = split_lines(text)
    end = next((number for number in range(place.first, place.last) if _END.match(lines[number])), place.last)
    if end == place.last:
        return end
    try:
        parse(dedented(text, place.first, end))
    except SyntaxError:
        return place.last
    return end


def dedented(text: str, first: int, last: int) -> str:
    """Some lines of a text, from 1, as they would stand at the top level.

    Lines of strings and comments may begin further left than the first line does: they stay.
    """
    lines = split_lines(text)[first - 1 : last]
    margin = lines[0][: len(lines[0]) - len(lines[0].lstrip())]
    return "".join(f"{line.removeprefix(margin)}\n" for line in lines)


def named(text: str, name: str) -> str:
    """The text of a definition with another name in its first line."""
    return _HEAD.sub(lambda match: match[1] + name, text)


def units_of(text: str, beginning: str, *, is_source: bool) -> DefinitionUnits:
    """Take a definition apart. A text that is no definition, by a replacement, is all header and has no body.

    Args:
        text: the definition at the top level.
        beginning: how marks begin, which do not count.
        is_source: ignore comments `# Ignore copy`, which then belong to another copy.
    """
    lines = text.removesuffix("\n").split("\n")
    lines = [without_ignored(line) for line in lines] if is_source else lines
    node = _definition(text)
    if node is None:
        return DefinitionUnits(tuple(lines), (), is_class=False)
    start = first_line(node.body[0], lines) - 1
    while start > 1 and (not lines[start - 1].strip() or lines[start - 1].lstrip().startswith("#")):
        start -= 1
    header, body = tuple(lines[:start]), []
    for position, child in enumerate(node.body):
        is_last = position + 1 == len(node.body)
        limit = len(lines) if is_last else first_line(node.body[position + 1], lines) - 1
        end = limit if is_last else max(end_with_footer(lines, child.end_lineno or 0, limit, child.col_offset), start)
        own = lines[start:end]
        marks = set(mark_lines(own, beginning))
        rest = tuple(line for number, line in enumerate(own) if number not in marks)
        above = tuple(own[number] for number in sorted(marks) if number < child.lineno - 1 - start)
        is_method = isinstance(child, _DEFINITIONS)
        body.append(BodyUnit(_name(child), rest, is_method, not is_source and is_ignored(own), above))
        start = end
    is_class = isinstance(node, ast.ClassDef)
    return DefinitionUnits(header, _in_groups(body) if is_class else tuple(body), is_class)


def _definition(text: str) -> Definition | None:
    """The only definition of a text; None for any other text."""
    try:
        body = parse(text).body
    except UNPARSABLE:
        return None
    return body[0] if len(body) == 1 and isinstance(body[0], _DEFINITIONS) else None


def _in_groups(body: Sequence[BodyUnit]) -> tuple[BodyUnit, ...]:
    """The members of a class; the statements between two methods are ignored together."""
    groups = itertools.groupby(body, lambda unit: unit.is_method)
    return tuple(
        unit if is_method else replace(unit, is_ignored=any(one.is_ignored for one in some))
        for is_method, some in ((is_method, list(group)) for is_method, group in groups)
        for unit in some
    )


def _name(node: ast.stmt) -> str:
    if isinstance(node, _DEFINITIONS):
        return node.name
    if isinstance(node, ast.Assign):
        return ", ".join(map(ast.unparse, node.targets))
    return ast.unparse(node.target) if isinstance(node, (ast.AnnAssign, ast.AugAssign)) else ""


Lines = tuple[str, ...]


def agree(source: DefinitionUnits, copy: DefinitionUnits) -> bool:
    """Whether two definitions have the same lines. Blank lines count only in strings. An ignored method matches the
    source's method of that name, which may be missing. Ignored statements match any number of statements; in a class,
    of statements that are no methods.
    """
    if _lines(source.header) != _lines(copy.header):
        return False
    ignored = {unit.name for unit in copy.body if unit.is_ignored and unit.is_method}
    theirs = [unit for unit in source.body if not (unit.is_method and unit.name in ignored)]
    ours = [unit for unit in copy.body if not (unit.is_method and unit.name in ignored)]
    if any(unit.is_ignored for unit in ours):
        return _fits(theirs, ours, source.is_class)
    return [line for unit in theirs for line in _lines(unit.lines)] == [
        line for unit in ours for line in _lines(unit.lines)
    ]


def same_lines(source: str, copy: str, beginning: str) -> bool:
    """Whether two texts have the same lines apart from marks and blank lines of code: so most copies need no parser."""
    ours, theirs = copy.split("\n"), source.split("\n")
    if is_ignored(ours) or is_ignored(theirs):
        return False
    return _without_marks(ours, beginning) == _without_marks(theirs, beginning)


def _without_marks(lines: list[str], beginning: str) -> Lines:
    marks = set(mark_lines(lines, beginning))
    return _lines([line for number, line in enumerate(lines) if number not in marks])


def differing(source: DefinitionUnits, copy: DefinitionUnits) -> list[str]:
    """The names of the members that differ or that only one text has; "" for members without a name."""
    theirs, ours = _by_name(source.body), _by_name(copy.body)
    ignored = {unit.name for unit in copy.body if unit.is_ignored}
    return [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name) and name not in ignored]


def _by_name(units: Sequence[BodyUnit]) -> dict[str, list[Lines]]:
    found: dict[str, list[Lines]] = {}
    for unit in units:
        found.setdefault(unit.name, []).append(_lines(unit.lines))
    return found


def _lines(lines: Sequence[str]) -> Lines:
    """The lines without blank lines and trailing blanks, except in strings, where both belong to the value."""
    kept = lexer.lines_within_strings("\n".join(lines))
    return tuple(
        line if number in kept else line.rstrip()
        for number, line in enumerate(lines)
        if number in kept or line.strip()
    )


def _fits(source: Sequence[BodyUnit], copy: Sequence[BodyUnit], in_class: bool) -> bool:
    """Whether the statements agree in order; an ignored one matches any number of the source's statements."""
    theirs = [_lines(unit.lines) for unit in source]
    reached = {0}
    for unit in copy:
        if unit.is_ignored:
            for place in range(min(reached), len(source)):
                if place in reached and not (in_class and source[place].is_method):
                    reached.add(place + 1)
        else:
            lines = _lines(unit.lines)
            reached = {place + 1 for place in reached if place < len(source) and theirs[place] == lines}
        if not reached:
            return False
    return len(source) in reached
