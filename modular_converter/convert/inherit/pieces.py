"""The sources of the lines of a merged class, as the merge records them for `modular-convert where`."""

from __future__ import annotations

from typing import NamedTuple


class TakenLines(NamedTuple):
    """Lines of the child, or of its renamed parent, both counted from 1 within the class."""

    is_own: bool
    """Whether they are the child's."""
    first: int
    last: int


class ClassPiece(NamedTuple):
    """Some lines of a merged class; the pieces of a class are consecutive and leave out no line."""

    lines: int
    taken: tuple[TakenLines, ...]
    """The lines that it was made from, the most important first. None for lines that the merge has added."""
    statements: tuple[TakenLines, ...] = ()
    """Of a merged method: the lines that each statement of its body was made from."""
