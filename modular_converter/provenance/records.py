"""The records of where a line comes from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class LineRange(NamedTuple):
    """Consecutive lines of a file."""

    path: str
    first: int
    last: int
    """From 1; the same as `first` for one line."""


class LineSource(NamedTuple):
    """Where one line of a generated file comes from."""

    places: tuple[LineRange, ...] = ()
    """Lines of the modular file and of its neighbours; several where a line was merged. None for a line that the
    converter has made: the notice on top, an import, a blank line."""
    definition: str = ""
    """The definition of the generated file that the line belongs to."""


Lines = list[tuple[LineRange, ...]]
"""For each line of a text, where it comes from."""


def joined(places: Iterable[LineRange]) -> tuple[LineRange, ...]:
    """The places in order, without repetitions; adjacent places of one file are joined."""
    found: list[LineRange] = []
    for place in places:
        near = next((number for number, one in enumerate(found) if _touch(one, place)), None)
        if near is None:
            found.append(place)
        else:
            one = found[near]
            found[near] = LineRange(one.path, min(one.first, place.first), max(one.last, place.last))
    return tuple(found)


def _touch(one: LineRange, other: LineRange) -> bool:
    return one.path == other.path and one.first <= other.last + 1 and other.first <= one.last + 1
