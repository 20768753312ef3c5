"""The Pareto front of several objectives, and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple


WIDTH, HEIGHT, EDGE = 640, 400, 60


def pareto_front(costs: Sequence[Sequence[float]]) -> list[int]:
    """The places of the costs that no other ones beat: less or equal in all, and not the same. The least first cost first."""
    best = [
        (list(own), number)
        for number, own in enumerate(costs)
        if not any(list(other) != list(own) and all(a <= b for a, b in zip(other, own)) for other in costs)
    ]
    return [number for _, number in sorted(best)]


class PlotPoint(NamedTuple):
    """A point of a picture; the best are joined by a line, and have their label beside them."""

    x: float
    y: float
    label: str
    title: str
    best: bool


def front_svg(points: Sequence[PlotPoint], axes: tuple[str, str]) -> str:
    """An SVG of all points, with the front as a line; empty without a point.

    Args:
        axes: what the two figures are, with their units.
    """
    if not points:
        return ""
    low, high = ((f(one.x for one in points), f(one.y for one in points)) for f in (min, max))

    def at(*figures: float) -> tuple[float, float]:
        shares = [(v - a) / (b - a) if b > a else 0.5 for v, a, b in zip(figures, low, high)]
        return EDGE + shares[0] * (WIDTH - 2 * EDGE), HEIGHT - EDGE - shares[1] * (HEIGHT - 2 * EDGE)

    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in sorted(at(one.x, one.y) for one in points if one.best))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            f'<path d="M{EDGE} {EDGE / 2} V{HEIGHT - EDGE} H{WIDTH - EDGE / 2}" fill="none" stroke="#888"/>',
            f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(axes[0])}</text>',
            f'<text transform="translate(16 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(axes[1])}</text>',
            *(
                f'<text x="{at(v, low[1])[0]:.1f}" y="{HEIGHT - EDGE + 18}" text-anchor="middle">{v:.4g}</text>'
                for v in sorted({low[0], high[0]})
            ),
            *(
                f'<text x="{EDGE - 6}" y="{at(low[0], v)[1] + 4:.1f}" text-anchor="end">{v:.4g}</text>'
                for v in sorted({low[1], high[1]})
            ),
            f'<polyline points="{line}" fill="none" stroke="#c33" stroke-width="1.5"/>',
            *(_dot(*at(one.x, one.y), one) for one in points),
            "</svg>\n",
        ]
    )


def _dot(x: float, y: float, point: PlotPoint) -> str:
    color = "#c33" if point.best else "#99a"
    label = f'<text x="{x + 8:.1f}" y="{y - 6:.1f}">{escape(point.label)}</text>' if point.best else ""
    title = f"<title>{escape(point.title)}</title>"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{5 if point.best else 4}" fill="{color}">{title}</circle>{label}'
