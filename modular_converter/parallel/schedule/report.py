"""A comparison of schedules as lines and tables, and as a value for JSON."""

from __future__ import annotations

from typing import Any

from modular_converter.parallel.schedule.forecast import Forecast, ScheduleComparison
from modular_converter.parallel.schedule.simulate import Timeline


def summary_line(found: Forecast, unit: str = "s") -> str:
    """A line with the step, the bubble, and the speed-up over one device."""
    line = found.timeline
    return (
        f"predicted step {time_text(line.step, unit)}, bubble {line.bubble:.1%}, "
        f"{line.speedup:.2f} times one device of {found.setting.ranks}"
    )


def title_of(found: Forecast) -> str:
    """The schedule and its sizes."""
    setting = found.setting
    held = f" x {setting.per_rank} stages" if setting.per_rank > 1 else ""
    passes = "" if setting.trains else ", forward only"
    return f"{setting.schedule}: {setting.ranks} ranks{held}, {setting.chunks} micro-batches{passes}"


def rank_table(found: Forecast, unit: str = "s") -> tuple[list[str], list[list[str]]]:
    """Head and rows: stages and layers of each rank, its compute, its bubble, and (if known) its peak memory."""
    bytes_known = any(use.peak for use in found.timeline.uses)
    head = ["rank", "stages", "layers", "compute", "bubble", "micro-batches held"]
    rows = []
    for rank, use in enumerate(found.timeline.uses):
        own = [stage for stage, owner in enumerate(found.timeline.order.stage_ranks) if owner == rank]
        layers = "+".join(str(found.balance[stage]) for stage in own)
        row = [str(rank), ",".join(map(str, own)), layers, time_text(use.busy, unit), f"{use.bubble:.1%}"]
        row.append(f"{use.held / found.setting.per_rank:g}")
        rows.append([*row, bytes_text(use.peak), bytes_text(use.state)] if bytes_known else row)
    return [*head, "peak memory", "of it state"] if bytes_known else head, rows


def schedule_table(comparison: ScheduleComparison, unit: str = "s") -> tuple[list[str], list[list[str]]]:
    """Head and rows: step, bubble and largest peak memory of the chosen schedule with the best balance, and of the others.

    If bytes are unknown, the most micro-batches that a rank holds, each with all layers of the rank, replace the peak.
    """
    others = [other for _, other in comparison.others if not isinstance(other, str)]
    bytes_known = any(use.peak for other in (comparison.best, *others) for use in other.timeline.uses)
    head = ["schedule", "stages a rank", "step", "bubble", "peak memory" if bytes_known else "micro-batches held"]
    rows = []
    for name, other in ((comparison.best.setting.schedule, comparison.best), *comparison.others):
        if isinstance(other, str):
            rows.append([name, "", "", "", other])
            continue
        per_rank, line = other.setting.per_rank, other.timeline
        held = max(use.held for use in line.uses) / per_rank
        peak = bytes_text(max(use.peak for use in line.uses)) if bytes_known else f"{held:g}"
        rows.append([name, str(per_rank), time_text(line.step, unit), f"{line.bubble:.1%}", peak])
    return head, rows


def to_value(comparison: ScheduleComparison, unit: str, notes: list[str], said: list[str]) -> dict[str, Any]:
    """The comparison for JSON: times in ``unit``, memory in bytes, bubbles from 0 to 1."""
    return {
        "unit": unit,
        "notes": notes,
        "chosen": {**_value(comparison.chosen), "actions": actions_value(comparison.chosen.timeline)},
        "best_balance": _value(comparison.best),
        "others": {
            name: {"refused": other} if isinstance(other, str) else _value(other) for name, other in comparison.others
        },
        "advice": said,
    }


def _value(found: Forecast) -> dict[str, Any]:
    setting, line = found.setting, found.timeline
    return {
        "schedule": setting.schedule,
        "ranks": setting.ranks,
        "stages_per_rank": setting.per_rank,
        "chunks": setting.chunks,
        "balance": list(found.balance),
        "step": line.step,
        "bubble": line.bubble,
        "speedup": line.speedup,
        "transfer": found.transfer,
        "by_rank": [
            {
                "compute": use.busy,
                "bubble": use.bubble,
                "held": use.held,
                "state_bytes": use.state,
                "peak_bytes": use.peak,
            }
            for use in line.uses
        ],
    }


def actions_value(line: Timeline) -> list[list[dict[str, Any]]]:
    """The actions of each rank with their start and end, for JSON."""
    return [[{"action": str(t.action), "start": t.start, "end": t.end} for t in rank] for rank in line.ranks]


def time_text(value: float, unit: str = "s") -> str:
    """A time with four digits: in s, ms or us if the unit is ``s``, else a plain number."""
    if unit != "s":
        return f"{value:.4g}"
    for factor, name in ((1.0, "s"), (1e-3, "ms")):
        if value >= factor:
            return f"{value / factor:.4g} {name}"
    return f"{value / 1e-6:.4g} us"


def bytes_text(value: float) -> str:
    """A number of bytes as text, with a binary prefix."""
    for factor, name in ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB")):
        if value >= factor:
            return f"{value / factor:.2f} {name}"
    return f"{value:.0f} B"
