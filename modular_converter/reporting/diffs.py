"""Unified diffs between what a file is and what it should be, in a time that grows with the lengths alone."""

from __future__ import annotations

import difflib
import os
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from modular_converter.reporting import safe


WORK = 200_000_000
"""What comparing costs at most, as steps of a search for the longest match: a second. Beyond, blocks are replaced."""
NO_NEWLINE = "\\ No newline at end of file"
_COLORS = {"+": "32", "-": "31", "@": "36"}

Match = tuple[int, int, int]
"""Where equal lines start in either text, and how many they are."""


def unified(path: str, old: str | None, new: str) -> list[str]:
    """The lines of the diff from `old`, None for a file that there is not, to `new`: fit for a terminal, and cut."""
    name = os.path.relpath(path)
    before = "/dev/null" if old is None else f"a/{name}"
    olds, news = _lines(old or ""), _lines(new)
    found = [safe.line(f"--- {before}"), safe.line(f"+++ b/{name}")]
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
    """The lines of a diff, in the usual colours where they are wanted."""
    for line in lines:
        code = _COLORS.get(line[:1]) if color else None
        yield f"\x1b[{code}m{line}\x1b[0m" if code else line


class _Matcher(difflib.SequenceMatcher[str]):
    """Puts what `matches` finds into groups, as difflib does; its own search may take hours for a stranger's file."""

    def __init__(self, old: Sequence[str], new: Sequence[str]) -> None:
        super().__init__()
        self._found = [difflib.Match(*match) for match in (*matches(old, new), (len(old), len(new), 0))]

    def get_matching_blocks(self) -> list[difflib.Match]:
        return self._found


def matches(old: Sequence[str], new: Sequence[str]) -> Iterator[Match]:
    """The longest runs of equal lines that are found, in order, no two of them adjacent in both texts."""
    start, new_start, size = 0, 0, 0
    for place, new_place, more in _pieces(old, new):
        if (start + size, new_start + size) == (place, new_place):
            size += more
            continue
        if size:
            yield start, new_start, size
        start, new_start, size = place, new_place, more
    if size:
        yield start, new_start, size


def _pieces(old: Sequence[str], new: Sequence[str]) -> Iterator[Match]:
    """Equal runs in order: the anchors, and what a search finds between them as long as it costs little."""
    left = WORK
    start = new_start = 0
    for place, new_place in [*_anchors(old, new), (len(old), len(new))]:
        gap, new_gap = old[start:place], new[new_start:new_place]
        cost = len(gap) * len(new_gap) * min(len(gap), len(new_gap))
        if 0 < cost <= left:
            left -= cost
            found = difflib.SequenceMatcher(None, gap, new_gap, autojunk=False).get_matching_blocks()
            yield from ((start + one.a, new_start + one.b, one.size) for one in found if one.size)
        if place < len(old):
            yield place, new_place, 1
        start, new_start = place + 1, new_place + 1


def _anchors(old: Sequence[str], new: Sequence[str]) -> list[tuple[int, int]]:
    """Places of equal lines, rising in both texts: the common start and end, and between them lines that occur once."""
    shorter = min(len(old), len(new))
    head = next((number for number in range(shorter) if old[number] != new[number]), shorter)
    tail = next((number for number in range(shorter - head) if old[-1 - number] != new[-1 - number]), shorter - head)
    end, new_end = len(old) - tail, len(new) - tail
    counts, new_counts = Counter(old[head:end]), Counter(new[head:new_end])
    places = {new[number]: number for number in range(head, new_end)}
    once = [
        (number, places[old[number]])
        for number in range(head, end)
        if counts[old[number]] == 1 == new_counts[old[number]]
    ]
    same = [(number, number) for number in range(head)]
    return [*same, *_rising(once), *((end + number, new_end + number) for number in range(tail))]


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """As many of these as there can be with second numbers that rise, too; the first ones do."""
    tops: list[int] = []  # of the ways of each length, the one that ends lowest: its last number, and its place
    ends: list[int] = []
    before: list[int] = []
    for position, (_, number) in enumerate(pairs):
        length = bisect_left(tops, number)
        before.append(ends[length - 1] if length else -1)
        tops[length : length + 1], ends[length : length + 1] = [number], [position]
    chosen = []
    position = ends[-1] if ends else -1
    while position >= 0:
        chosen.append(pairs[position])
        position = before[position]
    return chosen[::-1]


def _lines(text: str) -> list[str]:
    """The lines with their ends. Only a line feed ends one, so that other line ends are seen to differ."""
    *whole, last = text.split("\n")
    return [f"{one}\n" for one in whole] + ([last] if last else [])


def _shown(sign: str, lines: Iterable[str]) -> Iterator[str]:
    for line in lines:
        yield safe.line(sign + line.removesuffix("\n"))
        if not line.endswith("\n"):
            yield NO_NEWLINE


def _span(start: int, end: int) -> str:
    """A range of lines as the format has it: counted from 1, an empty one by the line before it."""
    if end - start == 1:
        return str(start + 1)
    return f"{start + (end > start)},{end - start}"
