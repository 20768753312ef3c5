"""The lines of a merged class, told from the pieces that the merge has recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from modular_converter.model.class_blocks import ClassPiece, TakenLines
from modular_converter.model.nodes import parse
from modular_converter.provenance.alignment import align, words_of
from modular_converter.provenance.records import Lines, joined


@dataclass(frozen=True)
class Halves:
    """The class of the modular file and its renamed parent, each with the places of its lines."""

    own_text: str
    own: Lines
    parent_text: str
    parent: Lines

    def at(self, taken: TakenLines) -> tuple[list[str], Lines]:
        """The lines of a part, and where they come from."""
        text, places = (self.own_text, self.own) if taken.is_own else (self.parent_text, self.parent)
        lines = text.split("\n")
        return lines[taken.first - 1 : taken.last], places[taken.first - 1 : taken.last]


def merged_lines(text: str, pieces: Sequence[ClassPiece], halves: Halves) -> Lines:
    """Where each line of a merged class comes from."""
    lines = text.removesuffix("\n").split("\n")
    found: Lines = []
    for piece in pieces:
        here = lines[len(found) : len(found) + piece.lines]
        if piece.statements:
            found += _method(here, piece, halves)
        else:
            found += _from_any(here, piece.taken, halves)
    return [*found, *((),) * (len(lines) - len(found))]


def _from_any(lines: list[str], taken: Sequence[TakenLines], halves: Halves) -> Lines:
    """The lines of a piece: paired one by one if there are as many sources, else aligned by their words."""
    if len(taken) == 1:
        _, places = halves.at(taken[0])
        if len(places) == len(lines):
            return places
    found: Lines = [()] * len(lines)
    lacking = [Counter(words_of(line)) for line in lines]
    for part in taken:
        texts, places = halves.at(part)
        for number, sources in enumerate(align(lines, texts)):
            if lacking[number] or not found[number]:
                there = sum((Counter(words_of(texts[source])) for source in sources), Counter[str]())
                if not found[number] or lacking[number] & there:
                    more = (place for source in sources for place in places[source])
                    found[number] = joined((*found[number], *more))
                    lacking[number] -= there
    return found


def _method(lines: list[str], piece: ClassPiece, halves: Halves) -> Lines:
    """The lines of a merged method: its signature from both halves, each statement from its own."""
    ends = list(_ends(lines))
    if len(ends) != len(piece.statements) + 1:
        return _from_any(lines, piece.taken, halves)
    found = _from_any(lines[: ends[0]], piece.taken, halves)
    for taken, start, end in zip(piece.statements, ends, ends[1:]):
        above = _comments_above(lines[start:end])
        found += _from_any(lines[start : start + above], [_above(taken, halves)], halves)
        found += _from_any(lines[start + above : end], [taken], halves)
    return found + _from_any(lines[ends[-1] :], piece.taken[:1], halves)


def _ends(lines: Sequence[str]) -> Iterator[int]:
    """The lines, from 0 and exclusive, at which the signature of a method and each statement of its body end."""
    method = parse("class _:\n" + "\n".join(lines)).body[0].body[0]  # type: ignore[attr-defined]
    first = method.body[0]
    start = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", ()))]) - 2
    while start and (not lines[start - 1].strip() or lines[start - 1].lstrip().startswith("#")):
        start -= 1
    yield start
    yield from (node.end_lineno - 1 for node in method.body)


def _comments_above(lines: Sequence[str]) -> int:
    """The number of blank lines and comments with which a statement begins."""
    code = (number for number, line in enumerate(lines) if line.strip() and not line.lstrip().startswith("#"))
    return next(code, len(lines))


def _above(taken: TakenLines, halves: Halves) -> TakenLines:
    """The comments and blank lines above a statement of one of the halves."""
    lines = (halves.own_text if taken.is_own else halves.parent_text).split("\n")
    first = taken.first
    while first > 1 and (not lines[first - 2].strip() or lines[first - 2].lstrip().startswith("#")):
        first -= 1
    return TakenLines(taken.is_own, first, taken.first - 1)
