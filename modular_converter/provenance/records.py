"""The records of where a line comes from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Place(NamedTuple):
    """Lines of a file that follow each other."""

    path: str
    first: int
    last: int
    """From 1; the same as `first` for one line."""


class LineSource(NamedTuple):
    """Where one line of a generated file comes from."""

    places: tuple[Place, ...] = ()
    """Lines of the modular file and of its neighbours; several where a line was merged. None for a line that the
    converter has made: the notice on top, an import, a blank line."""
    definition: str = ""
    """The definition of the generated file that the line belongs to."""


Lines = list[tuple[Place, ...]]
"""For each line of a text, where it comes from."""


def joined(places: Iterable[Place]) -> tuple[Place, ...]:
    """The places without repetitions, those that touch each other in one file as one, in order."""
    found: list[Place] = []
    for place in places:
        near = next((number for number, one in enumerate(found) if _touch(one, place)), None)
        if near is None:
            found.append(place)
        else:
            one = found[near]
            found[near] = Place(one.path, min(one.first, place.first), max(one.last, place.last))
    return tuple(found)


def _touch(one: Place, other: Place) -> bool:
    return one.path == other.path and one.first <= other.last + 1 and other.first <= one.last + 1
