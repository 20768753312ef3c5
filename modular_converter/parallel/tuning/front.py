"""What a study has found, as a table and a picture: the Pareto front of several objectives."""

from __future__ import annotations

from collections.abc import Sequence

from modular_converter.parallel.tuning.pareto import PlotPoint, front_svg
from modular_converter.parallel.tuning.study import OBJECTIVES, TrialResult


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


def _row(one: TrialResult, mark: str) -> list[str]:
    chosen, found = one[0].chosen, one[1].measured
    step = f"{found['seconds']:.4g} s ± {found['interval']:.2g}"
    return [
        str(chosen),
        str(chosen.batch),
        f"{found['tokens_a_second']:.4g}",
        step,
        f"{found['memory'] / 2**20:.0f} MiB",
        mark,
    ]


def front_picture(results: Sequence[TrialResult], front: Sequence[TrialResult], objectives: Sequence[str]) -> str:
    """An SVG of the first two objectives (of one, with memory): a point for each setting, the front as a line."""
    first, second = [*objectives, *(name for name in ("memory", "tokens") if name not in objectives)][:2]
    points = [
        PlotPoint(
            one[1].measured[OBJECTIVES[first].figure],
            one[1].measured[OBJECTIVES[second].figure],
            str(one[0].chosen),
            f"{one[0].chosen}, batch {one[0].chosen.batch}",
            one in front,
        )
        for one in results
        if not one[1].kind
    ]
    return front_svg(points, (OBJECTIVES[first].unit, OBJECTIVES[second].unit))
