"""A timeline as text, a row for each rank, and as an SVG picture for light and dark pages; equal timelines give equal bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from xml.sax.saxutils import escape

from modular_converter.parallel.schedule.forecast import Timed, Timeline
from modular_converter.parallel.schedule.orders import Work


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


WIDTH = 960.0
LEFT, TOP, ROW, GAP = 64.0, 44.0, 26.0, 6.0
_CLASSES = {Work.FORWARD: "f", Work.BACKWARD: "b", Work.INPUT_BACKWARD: "i", Work.WEIGHT_BACKWARD: "w"}
_STYLE = """
  svg { font: 12px system-ui, sans-serif; background: #ffffff; }
  text { fill: #1b1f24; } .title { font-size: 15px; font-weight: 600; }
  .n { font-size: 10px; text-anchor: middle; fill: #10131a; }
  .idle { fill: url(#idle); stroke: #8c959f; stroke-width: 0.5; } .line { stroke: #8c959f; }
  .f { fill: #7cb7f5; } .b { fill: #f2a65a; } .i { fill: #f2a65a; } .w { fill: #93d08f; }
  .f.later { fill: #c3dffb; } .b.later, .i.later { fill: #f9d5ad; } .w.later { fill: #cdebc9; }
  .bar { stroke: #ffffff; stroke-width: 0.6; }
  @media (prefers-color-scheme: dark) {
    svg { background: #0d1117; } text { fill: #e6edf3; } .n { fill: #10131a; } .bar { stroke: #0d1117; }
  }
"""


def svg(timeline: Timeline, title: str, caption: str) -> str:
    """The text of an SVG file.

    Args:
        title: plain text above the picture.
        caption: plain text below the picture.
    """
    ranks = timeline.order.ranks
    below = TOP + ranks * (ROW + GAP) + 18
    height = below + 48
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_number(WIDTH)} {_number(height)}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(caption)}</desc>",
        f"<style>{_STYLE}</style>",
        '<defs><pattern id="idle" width="6" height="6" patternUnits="userSpaceOnUse">'
        '<path class="line" d="M0 6 L6 0" stroke-width="0.6"/></pattern></defs>',
        _text(LEFT, 24, title, "title"),
    ]
    for rank in range(ranks):
        lines += _rank(timeline, rank)
    lines += _legend(timeline, below)
    lines += [_text(LEFT, below + 28, caption), "</svg>"]
    return "\n".join(lines) + "\n"


def _rank(timeline: Timeline, rank: int) -> Iterator[str]:
    top = TOP + rank * (ROW + GAP)
    inner = WIDTH - LEFT - 16
    scale = inner / timeline.step if timeline.step else 0.0
    stages = [stage for stage, owner in enumerate(timeline.order.stage_ranks) if owner == rank]
    yield _text(8, top + ROW / 2 + 4, f"rank {rank}")
    yield _bar("idle", LEFT, top, inner)
    for timed in timeline.ranks[rank]:
        later = " later" if timed.action.stage != stages[0] else ""
        left, width = LEFT + timed.start * scale, (timed.end - timed.start) * scale
        hint = f"{NAMES[timed.action.work]} of micro-batch {timed.action.chunk}, stage {timed.action.stage}"
        yield _bar(f"bar {_CLASSES[timed.action.work]}{later}", left, top, width, hint)
        number = str(timed.action.chunk)
        if width >= 6.5 * len(number):
            yield _text(left + width / 2, top + ROW / 2 + 3.5, number, "n")


def _legend(timeline: Timeline, top: float) -> Iterator[str]:
    entries = [(_CLASSES[work], NAMES[work]) for work in works_of(timeline)] + [("idle", "idle")]
    left = LEFT
    for kind, name in entries:
        yield f'<rect class="{kind}" x="{_number(left)}" y="{_number(top - 10)}" width="14" height="12"/>'
        yield _text(left + 20, top, name)
        left += 40 + 7 * len(name)
    if timeline.order.stages > timeline.order.ranks:
        yield _text(left, top, "paler: a later stage of the rank")


def _bar(kind: str, left: float, top: float, width: float, hint: str = "") -> str:
    place = f'x="{_number(left)}" y="{_number(top)}" width="{_number(width)}" height="{_number(ROW)}"'
    return f'<rect class="{kind}" {place}>' + (f"<title>{escape(hint)}</title>" if hint else "") + "</rect>"


def _text(left: float, top: float, text: str, kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text{name} x="{_number(left)}" y="{_number(top)}">{escape(text)}</text>'


def _number(value: float) -> str:
    """A number with at most two decimals, without trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
