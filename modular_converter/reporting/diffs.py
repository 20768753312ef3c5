"""Unified diffs between a file on disk and its expected text, in bounded time."""

from __future__ import annotations

import difflib
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from modular_converter.reporting import display


MOST_STEPS = 30_000_000
"""The limit of steps for a search: two seconds for the worst texts of 9,000 lines that we could construct. Without a
limit, a hostile file takes hours.
"""
NO_NEWLINE = "\\ No newline at end of file"
_COLORS = {"+": "32", "-": "31", "@": "36"}


def unified(path: str, old: str | None, new: str) -> list[str]:
    """The lines of a unified diff, escaped and cut for a terminal; none for equal texts.

    Args:
        old: the text on disk; None for a file that does not exist.
        new: the text that the file should have.
    """
    name = os.path.relpath(path)
    before = "/dev/null" if old is None else f"a/{name}"
    olds, news = _lines(old or ""), _lines(new)
    found = [display.report_line(f"--- {before}"), display.report_line(f"+++ b/{name}")]
    matcher = _Matcher(olds, news)
    for group in matcher.get_grouped_opcodes():
        first, last = group[0], group[-1]
        found.append(f"@@ -{_span(first[1], last[2])} +{_span(first[3], last[4])} @@")
        for tag, start, end, new_start, new_end in group:
            if tag == "equal":
                found += _shown(" ", olds[start:end])
            else:
                found += _shown("-", olds[start:end])
                found += _shown("+", news[new_start:new_end])
    return found if len(found) > 2 else []


def colored(lines: Iterable[str], color: bool) -> Iterator[str]:
    """The lines of a diff, in the colours that git gives them if `color` is true."""
    for line in lines:
        code = _COLORS.get(line[:1]) if color else None
        yield f"\x1b[{code}m{line}\x1b[0m" if code else line


class _Matcher(difflib.SequenceMatcher[str]):
    """Groups the blocks of `matching_blocks` as difflib groups its own."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__()
        self._found = [*matching_blocks(old, new), difflib.Match(len(old), len(new), 0)]

    def get_matching_blocks(self) -> list[difflib.Match]:
        return self._found


def differing_parts(old: Sequence[str], new: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """The parts of two lists that differ: first and end, exclusive, in the old one and in the new one."""
    return (
        (start, end, first, last)
        for tag, start, end, first, last in _Matcher(old, new).get_opcodes()
        if tag != "equal"
    )


def matching_blocks(old: Sequence[str], new: Sequence[str]) -> list[difflib.Match]:
    """The blocks of equal lines, in order: the common start and end, and the blocks that difflib finds between them.

    Where the search might take long, there are no blocks between start and end: this part then counts as replaced.
    """
    head = len(os.path.commonprefix([[*old], [*new]]))
    tail = len(os.path.commonprefix([[*old[head:]][::-1], [*new[head:]][::-1]]))
    olds, news = old[head : len(old) - tail], new[head : len(new) - tail]
    found = [difflib.Match(0, 0, head)]
    if _most_steps(olds, news) <= MOST_STEPS:
        blocks = difflib.SequenceMatcher(None, olds, news).get_matching_blocks()
        found += (difflib.Match(head + block.a, head + block.b, block.size) for block in blocks)
    found.append(difflib.Match(len(old) - tail, len(new) - tail, tail))
    return [block for block in found if block.size]


def _most_steps(old: Sequence[str], new: Sequence[str]) -> int:
    """An estimate of the most steps that difflib takes.

    One search for the longest block looks at each pair of equal lines. If it always finds the block at one end, the
    next one looks at nearly as many, but blocks of falling length fill the text after the square root of its lines.
    A line that is more than a hundredth of a long text, such as an empty one, is not searched for.
    """
    most = len(new) // 100 + 1 if len(new) >= 200 else len(new)
    counts = {line: count for line, count in Counter(new).items() if count <= most}
    pairs = sum(counts.get(line, 0) for line in old)
    return (len(old) + pairs) * math.isqrt(2 * min(len(old), len(new)))


def _lines(text: str) -> list[str]:
    """The lines with their line feeds. No other character ends a line, so a diff shows a changed line end."""
    *whole, last = text.split("\n")
    return [f"{one}\n" for one in whole] + ([last] if last else [])


def _shown(sign: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield display.report_line(sign + line.removesuffix("\n"))
        if not line.endswith("\n"):
            yield NO_NEWLINE


def _span(start: int, end: int) -> str:
    """A range of lines in the notation of unified diffs: first line from 1, or the line above an empty range."""
    if end - start == 1:
        return str(start + 1)
    return f"{start + (end > start)},{end - start}"
