"""A timeline as text: a row for each rank, with letters and numbers of micro-batches, and dots for idle time."""

from __future__ import annotations

from typing import NamedTuple

from modular_converter.parallel.schedule.actions import Work
from modular_converter.parallel.schedule.simulate import Timed, Timeline


NAMES = {
    Work.FORWARD: "forward",
    Work.BACKWARD: "backward",
    Work.INPUT_BACKWARD: "backward of inputs",
    Work.WEIGHT_BACKWARD: "backward of weights",
}


class RowPiece(NamedTuple):
    """A piece of a row: the text, and its kind of work; None for idle time."""

    text: str
    work: Work | None


def text_rows(timeline: Timeline, width: int) -> list[list[RowPiece]]:
    """The rows of all ranks, each at most ``width`` columns long.

    Lower case letters are later stages of a rank. An action without room for its number consists of its letter.
    """
    shortest = min((t.end - t.start for rank in timeline.ranks for t in rank if t.end > t.start), default=1.0)
    label = 2 + len(str(timeline.order.chunks - 1))
    scale = min(label / shortest, width / timeline.step) if timeline.step else 0.0
    return [_row(timeline, rank, scale) for rank in range(timeline.order.ranks)]


def _row(timeline: Timeline, rank: int, scale: float) -> list[RowPiece]:
    first = timeline.order.stage_ranks.index(rank)
    pieces: list[RowPiece] = []
    column = 0
    for timed in timeline.ranks[rank]:
        start, end = round(timed.start * scale), round(timed.end * scale)
        if start > column:
            pieces.append(RowPiece("." * (start - column), None))
        if end > start:
            pieces.append(RowPiece(_label(timed, end - start, timed.action.stage > first), timed.action.work))
        column = end
    rest = round(timeline.step * scale) - column
    return [*pieces, RowPiece("." * rest, None)] if rest else pieces


def _label(timed: Timed, width: int, later: bool) -> str:
    letter = timed.action.work.value
    letter = letter.lower() if later else letter
    text = f"{letter}{timed.action.chunk}"
    return text.ljust(width, "-") if len(text) <= width else letter * width


def works_of(timeline: Timeline) -> list[Work]:
    """The kinds of work in a timeline, in the order of ``Work``."""
    found = {timed.action.work for rank in timeline.ranks for timed in rank}
    return [work for work in Work if work in found]


def text_legend(timeline: Timeline) -> str:
    """The meaning of the letters."""
    kinds = ", ".join(f"{work.value} {NAMES[work]}" for work in works_of(timeline))
    later = ", lower case: a later stage of the rank" if timeline.order.stages > timeline.order.ranks else ""
    return f"{kinds}, with the number of the micro-batch{later}; . idle"
