"""Where the lines of a merged class were taken from: records that the merge keeps, for whoever asks about a line."""

from __future__ import annotations

from typing import NamedTuple


class TakenLines(NamedTuple):
    """Lines of the child, or of its renamed parent, both counted from 1 within the class."""

    is_own: bool
    """Whether they are the child's."""
    first: int
    last: int


class ClassPiece(NamedTuple):
    """Some lines of a merged class; the pieces of a class follow each other and leave out no line."""

    lines: int
    taken: tuple[TakenLines, ...]
    """Lines that it was made from; of several the first has the say. None for lines that the merge has made."""
    statements: tuple[TakenLines, ...] = ()
    """Of a merged method: the lines that each statement of its body was made from."""
