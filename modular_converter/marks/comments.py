"""The comments that name the origin of a copy: `# Copied from transformers.models.bert.modeling_bert.BertLayer with A->B`."""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from modular_converter.model import lexer


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
    starts = [0, *itertools.accumulate(len(line) + 1 for line in lines)]
    return [
        mark
        for token in lexer.tokens(text)
        if token.kind == "comment"
        and (mark := _mark(text[token.start : token.end], token.start, lines, starts, beginning, package))
    ]


def _mark(
    comment: str, start: int, lines: list[str], starts: list[int], beginning: str, package: str
) -> CopyMark | None:
    comment = comment.rstrip()
    found = _LOOSE.search(comment)
    if found is None or not _is_meant(found["path"].rstrip("."), found["rest"], package):
        return None
    line = bisect.bisect_right(starts, start)
    column = start - starts[line - 1] + 1
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


def is_end(line: str) -> bool:
    """Whether a line is a comment `# End copy`: the lines below it belong to the copy alone."""
    return _END.match(line) is not None


def mark_lines(lines: list[str], beginning: str) -> Iterator[int]:
    """The positions of the lines that are marks."""
    pattern = re.compile(rf"[ \t]*#[ \t]*{re.escape(beginning)} ")
    return (number for number, line in enumerate(lines) if pattern.match(line))
