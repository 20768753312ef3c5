"""What a study has found, as a table and a picture: the Pareto front of several objectives."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from modular_converter.parallel.tuning.study import OBJECTIVES, TrialResult


WIDTH, HEIGHT, EDGE = 640, 400, 60


def result_table(results: Sequence[TrialResult], front: Sequence[TrialResult]) -> tuple[list[str], list[list[str]]]:
    """The settings of the front, then the others, then those that failed, and why."""
    ran = [one for one in results if not one[1].kind and one not in front]
    ran.sort(key=lambda one: one[1].measured["seconds"] / one[0].chosen.batch)
    failed = [one for one in results if one[1].kind]
    head = ["setting", "batch", "tokens/s", "a step", "memory", ""]
    rows = [_row(one, "best" if one in front else "") for one in (*front, *ran)]
    return head, rows + [
        [str(c.chosen), str(c.chosen.batch), "", "", "", f"{o.kind}: {o.why}"[:90]] for c, o in failed
    ]


def _row(one: TrialResult, said: str) -> list[str]:
    chosen, found = one[0].chosen, one[1].measured
    step = f"{found['seconds']:.4g} s ± {found['interval']:.2g}"
    return [
        str(chosen),
        str(chosen.batch),
        f"{found['tokens_a_second']:.4g}",
        step,
        f"{found['memory'] / 2**20:.0f} MiB",
        said,
    ]


def front_picture(results: Sequence[TrialResult], front: Sequence[TrialResult], objectives: Sequence[str]) -> str:
    """An SVG of the first two objectives (of one, with memory): a point for each setting, the front as a line."""
    names = [*objectives, *(name for name in ("memory", "tokens") if name not in objectives)][:2]
    points = [(_figures(one, names), one) for one in results if not one[1].kind]
    if not points:
        return ""
    low, high = ([f(p[0][axis] for p in points) for axis in (0, 1)] for f in (min, max))

    def at(figures: Sequence[float]) -> tuple[float, float]:
        shares = [(v - a) / (b - a) if b > a else 0.5 for v, a, b in zip(figures, low, high)]
        return EDGE + shares[0] * (WIDTH - 2 * EDGE), HEIGHT - EDGE - shares[1] * (HEIGHT - 2 * EDGE)

    best = sorted(at(_figures(one, names)) for one in front)
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in best)
    dots = [_dot(*at(figures), one, one in front) for figures, one in points]
    axes = [
        f'<path d="M{EDGE} {EDGE / 2} V{HEIGHT - EDGE} H{WIDTH - EDGE / 2}" fill="none" stroke="#888"/>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">{OBJECTIVES[names[0]].unit}</text>',
        f'<text transform="translate(16 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{OBJECTIVES[names[1]].unit}</text>',
        *(
            f'<text x="{at((v, low[1]))[0]:.1f}" y="{HEIGHT - EDGE + 18}" text-anchor="middle">{v:.4g}</text>'
            for v in {low[0], high[0]}
        ),
        *(
            f'<text x="{EDGE - 6}" y="{at((low[0], v))[1] + 4:.1f}" text-anchor="end">{v:.4g}</text>'
            for v in {low[1], high[1]}
        ),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            *axes,
            f'<polyline points="{line}" fill="none" stroke="#c33" stroke-width="1.5"/>',
            *dots,
            "</svg>\n",
        ]
    )


def _figures(one: TrialResult, names: Sequence[str]) -> list[float]:
    return [one[1].measured[OBJECTIVES[name].figure] for name in names]


def _dot(x: float, y: float, one: TrialResult, best: bool) -> str:
    said = escape(f"{one[0].chosen}, batch {one[0].chosen.batch}")
    color = "#c33" if best else "#99a"
    label = f'<text x="{x + 8:.1f}" y="{y - 6:.1f}">{escape(str(one[0].chosen))}</text>' if best else ""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{5 if best else 4}" fill="{color}"><title>{said}</title></circle>{label}'
