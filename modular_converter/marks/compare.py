"""Whether a copy equals its source, except where `# Ignore copy` allows differences."""

from __future__ import annotations

from collections.abc import Sequence

from modular_converter.marks.comments import is_ignored, mark_lines
from modular_converter.marks.units import BodyUnit, DefinitionUnits
from modular_converter.model import lexer


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
    kept = _ending_in_strings(lines)
    return tuple(
        line if number in kept else line.rstrip()
        for number, line in enumerate(lines)
        if number in kept or line.strip()
    )


def _ending_in_strings(lines: Sequence[str]) -> set[int]:
    """The positions of the lines that end inside of a string."""
    text = "\n".join(lines)
    if '"""' not in text and "'''" not in text and "\\\n" not in text:
        return set()
    found: set[int] = set()
    counted, line = 0, 0
    for token in lexer.tokens(text):
        if token.kind != "comment" and "\n" in text[token.start : token.end]:
            line += text.count("\n", counted, token.start)
            found.update(range(line, line + text.count("\n", token.start, token.end)))
            counted = token.start
    return found


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
