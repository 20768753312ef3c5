"""Align the lines of a formatted text with those of the unformatted text by their words: a formatter only moves words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple


_WORD = re.compile(r"\w+|[^\w\s]")
LAYOUT = frozenset("'\"(),\\;")
"""The tokens that a formatter adds, removes or exchanges."""
WINDOW = 60
"""The most words, in both texts together, that are skipped to find a place where the texts agree again."""
AGREEMENT = 3
"""The number of words that must agree there."""


class Word(NamedTuple):
    """A word or an operator, with its line from 0."""

    text: str
    line: int


def _words(lines: Sequence[str]) -> list[Word]:
    """The words of some lines in order, without what a formatter may add or remove."""
    return [Word(text, number) for number, line in enumerate(lines) for text in words_of(line)]


def words_of(line: str) -> tuple[str, ...]:
    """The words and operators of one line, without what a formatter may add or remove."""
    return tuple(text for text in _WORD.findall(line) if text not in LAYOUT)


def align(new: Sequence[str], old: Sequence[str]) -> list[list[int]]:
    """For each line of `new`, the lines of `old` that its words come from, in order, from 0.

    A line without words belongs to the line above it. A line whose words are nowhere in `old` has none.
    """
    found: list[dict[int, None]] = [{} for _ in new]
    for line, source in _pairs(_words(new), _words(old)):
        found[line].setdefault(source)
    _drop_bare(found, new, old)
    _find_moved(found, new, old)
    _follow(found, new, old)
    return [list(one) for one in found]


def _pairs(new: list[Word], old: list[Word]) -> list[tuple[int, int]]:
    """The lines of the words that agree, in their order in both texts."""
    pairs: list[tuple[int, int]] = []
    ours, theirs = [one.text for one in new], [one.text for one in old]
    left = right = 0
    while left < len(new) and right < len(old):
        if ours[left] == theirs[right]:
            pairs.append((new[left].line, old[right].line))
            left, right = left + 1, right + 1
        else:
            skipped = _skips(ours, theirs, left, right)
            if skipped is None:  # the texts differ from here on: the rest of `new` has no source
                left += 1
                continue
            left, right = left + skipped[0], right + skipped[1]
    return pairs


def _skips(new: list[str], old: list[str], left: int, right: int) -> tuple[int, int] | None:
    """The fewest words to skip in both texts until they agree again."""
    for total in range(1, WINDOW):
        for skipped in range(total + 1):
            here, there = left + skipped, right + total - skipped
            ours = new[here : here + AGREEMENT]
            if ours and ours == old[there : there + AGREEMENT]:
                return skipped, total - skipped
    return None


def _drop_bare(found: list[dict[int, None]], new: Sequence[str], old: Sequence[str]) -> None:
    """Take the source from a line that has words, but nothing of it than an operator: the `@` of another decorator."""
    for line, sources in zip(new, found):
        names = {*filter(str.isidentifier, words_of(line))}
        if names and sources and names.isdisjoint(word for place in sources for word in words_of(old[place])):
            sources.clear()


def _find_moved(found: list[dict[int, None]], new: Sequence[str], old: Sequence[str]) -> None:
    """Give a line without a source the only old line that begins like it and has all its words.

    A formatter sorts imports, and makes two of `import a, b`.
    """
    missing = [number for number, sources in enumerate(found) if not sources and words_of(new[number])]
    there = [words_of(line) for line in old] if missing else []
    for number in missing:
        wanted = words_of(new[number])
        places = [place for place, some in enumerate(there) if some[:1] == wanted[:1] and {*wanted} <= {*some}]
        if len(places) == 1:
            found[number].setdefault(places[0])


def _follow(found: list[dict[int, None]], new: Sequence[str], old: Sequence[str]) -> None:
    """Give a line without words the line below the source of the line above, where it is the same, or that source."""
    for number, sources in enumerate(found):
        if sources or words_of(new[number]):
            continue
        above = list(found[number - 1]) if number else [-1]
        if not above:
            continue
        below = above[-1] + 1
        if below < len(old) and not words_of(old[below]) and old[below].strip() == new[number].strip():
            sources.setdefault(below)
        elif new[number].strip() and above[-1] >= 0:
            sources.setdefault(above[-1])


def same_names(new: Sequence[str], old: Sequence[str]) -> list[list[int]]:
    """For each line of `new`, the lines of `old`, from 0, that have one of its names: a list is put in any order."""
    places: dict[str, list[int]] = {}
    for number, line in enumerate(old):
        for word in filter(str.isidentifier, words_of(line.partition("#")[0])):
            places.setdefault(word, []).append(number)
    found = [sorted({place for word in words_of(line) for place in places.get(word, ())}) for line in new]
    last = len(old) - 1
    end = {*words_of(old[last].partition("#")[0])}
    return [one or ([last] if end.intersection(words_of(line)) else []) for one, line in zip(found, new)]
