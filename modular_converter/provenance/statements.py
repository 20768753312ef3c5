"""The lines of the definitions that a conversion reads, before they are renamed, merged and formatted."""

from __future__ import annotations

import bisect

from modular_converter.convert.source.rename import without_copy_comments
from modular_converter.model.module import Statement
from modular_converter.provenance.records import LineRange, Lines


def lead_lines(statement: Statement, path: str, copy_comment: str) -> Lines:
    """Where the lines above a definition come from, of which those that name the origin of a copy are left out."""
    first = statement.line - statement.lead.count("\n")
    return _kept(statement.lead, [first + number for number in range(statement.lead.count("\n"))], path, copy_comment)


def text_lines(statement: Statement, path: str, copy_comment: str) -> Lines:
    """Where the lines of a definition come from, with the changes that are joined to it."""
    starts = [0, *(line for line, _ in statement.joined)]
    numbers = [statement.line, *(number for _, number in statement.joined)]
    lines = []
    for line in range(statement.text.count("\n") + 1):
        part = bisect.bisect_right(starts, line) - 1
        lines.append(numbers[part] + line - starts[part])
    return _kept(statement.text, lines, path, copy_comment)


def _kept(text: str, numbers: list[int], path: str, copy_comment: str) -> Lines:
    """The places of the lines that stay when the comments about copies go."""
    places: Lines = [(LineRange(path, number, number),) for number in numbers]
    kept = without_copy_comments(text, copy_comment)
    if kept == text:
        return places
    found: Lines = []
    rest = iter(kept.split("\n"))
    wanted = next(rest, None)
    for line, place in zip(text.split("\n"), places):
        if line == wanted:
            found.append(place)
            wanted = next(rest, None)
    return found
