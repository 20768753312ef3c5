"""A comparison of schedules as lines and tables, as a value for JSON, and as advice; a measured step beside the predicted one."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.schedule.forecast import (
    Forecast,
    ScheduleComparison,
    Timed,
    Timeline,
    forecast,
    step_time,
)
from modular_converter.parallel.schedule.orders import Work
from modular_converter.parallel.schedule.stage_costs import ChainCosts, StageCost


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


def to_value(comparison: ScheduleComparison, unit: str, notes: list[str], sentences: list[str]) -> dict[str, Any]:
    """The comparison for JSON: times in ``unit``, memory in bytes, bubbles from 0 to 1."""
    return {
        "unit": unit,
        "notes": notes,
        "chosen": {**_value(comparison.chosen), "actions": actions_value(comparison.chosen.timeline)},
        "best_balance": _value(comparison.best),
        "others": {
            name: {"refused": other} if isinstance(other, str) else _value(other) for name, other in comparison.others
        },
        "advice": sentences,
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


HIGH_BUBBLE = 0.5
GOOD_BUBBLE = 0.2
DOMINANT = 1.25
"""A rank with more than this multiple of the mean compute sets the pace of all others."""


def advice(comparison: ScheduleComparison, costs: ChainCosts, memory: float | None = None) -> list[str]:
    """Sentences about problems of the chosen setting, each with a remedy; empty if there is no problem.

    Args:
        memory: bytes of a device; None if unknown.
    """
    found = [*_bubble(comparison.chosen, costs), *_imbalance(comparison), *_transfer(comparison.chosen)]
    speedup = comparison.chosen.timeline.speedup
    ranks = comparison.chosen.setting.ranks
    if ranks > 1 and speedup < 1:
        found.insert(
            0, f"the pipeline does not pay: one device would be {1 / speedup:.2f} times faster, if it had room"
        )
    elif ranks > 1 and found:
        found.insert(0, f"{ranks} ranks are expected to be {speedup:.2f} times faster than one, not {ranks} times")
    return found + ([] if memory is None else _memory(comparison, memory))


def _memory(comparison: ScheduleComparison, memory: float) -> list[str]:
    """The ranks that need more than ``memory`` bytes, and the schedules that fit."""
    uses = comparison.chosen.timeline.uses
    full = [rank for rank, use in enumerate(uses) if use.peak > memory]
    if not full:
        return []
    need = f"ranks {', '.join(map(str, full))} need up to {bytes_text(max(use.peak for use in uses))}, a device has "
    need += bytes_text(memory)
    if any(use.state > memory for use in uses):
        return [f"{need}, and weights, gradients and optimizer state alone are more; take more ranks, or divide them"]
    fits = [
        name
        for name, other in comparison.others
        if not isinstance(other, str) and max(use.peak for use in other.timeline.uses) <= memory
    ]
    others = f"{', '.join(fits)} would fit; or " if fits else ""
    return [f"{need}; {others}take smaller micro-batches, more ranks, or activation checkpointing"]


def _bubble(chosen: Forecast, costs: ChainCosts) -> list[str]:
    bubble, setting = chosen.timeline.bubble, chosen.setting
    if bubble <= HIGH_BUBBLE:
        return []
    idle = f"the ranks are idle for {bubble:.0%} of the step"
    chunks = setting.chunks
    while (chunks := chunks * 2) <= 64 * setting.ranks:
        try:
            less = forecast(replace(setting, chunks=chunks), costs, chosen.balance).timeline.bubble
        except ScheduleError:  # the schedule does not allow this number of micro-batches
            continue
        if less <= GOOD_BUBBLE:
            return [f"{idle}; {chunks} micro-batches of the same size make it {less:.0%}"]
    return [f"{idle}, and more micro-batches alone do not change it: see the balance and the transfers"]


def _imbalance(comparison: ScheduleComparison) -> list[str]:
    chosen, best = comparison.chosen, comparison.best
    slowest, excess = _excess(chosen)
    if excess <= DOMINANT:
        return []
    slow = f"rank {slowest} has {excess:.2f} times the mean compute of the ranks and sets the pace"
    gain = 1 - best.timeline.step / chosen.timeline.step
    if gain > 0.01:
        return [f"{slow}; --balance {','.join(map(str, best.balance))} shortens the step by {gain:.0%}"]
    return [
        f"{slow}, and no balance that was found is better: a layer, the embeddings or the head is too large for one of "
        f"{chosen.setting.stages} stages; take fewer stages, or divide it with tensor parallelism"
    ]


def _excess(chosen: Forecast) -> tuple[int, float]:
    """The rank with the most compute, and its compute as a multiple of the mean."""
    busy = [use.busy for use in chosen.timeline.uses]
    mean = sum(busy) / len(busy)
    slowest = max(range(len(busy)), key=busy.__getitem__)
    return slowest, busy[slowest] / mean if mean else 1.0


def _transfer(chosen: Forecast) -> list[str]:
    forward = sum(stage.forward for stage in chosen.stages) / len(chosen.stages)
    if chosen.setting.ranks == 1 or chosen.transfer <= forward:
        return []
    fewer = "fewer stages a rank, " if chosen.setting.per_rank > 1 else ""
    return [
        f"a transfer between ranks takes {chosen.transfer / forward:.1f} times the forward pass of a stage, so that the "
        f"ranks wait for each other; take {fewer}fewer ranks or a faster connection"
    ]


@dataclass(frozen=True)
class MeasuredStep:
    """A measured step.

    Attributes:
        seconds: from the common start to the end of the last process.
        ranks: the actions of each rank, in order; times count from the common start.
        peaks: the most bytes at once on each rank; 0 if unknown, as on a CPU.
    """

    seconds: float
    ranks: tuple[tuple[Timed, ...], ...]
    peaks: tuple[float, ...]

    def timeline(self, predicted: Timeline) -> Timeline:
        """The step as a timeline, with the order and the other figures of the predicted timeline."""
        uses = []
        for use, timed, peak in zip(predicted.uses, self.ranks, self.peaks):
            busy = sum(one.end - one.start for one in timed)
            uses.append(replace(use, busy=busy, bubble=1 - busy / self.seconds, peak=peak))
        return Timeline(predicted.order, self.seconds, self.ranks, tuple(uses))

    def stage_costs(self, stages: int) -> tuple[StageCost, ...]:
        """The median seconds of each stage's actions. A whole backward counts as a backward of inputs."""
        found: dict[tuple[int, Work], list[float]] = defaultdict(list)
        for timed in (one for rank in self.ranks for one in rank):
            found[timed.action.stage, timed.action.work].append(timed.end - timed.start)
        medians = {key: statistics.median(times) for key, times in found.items()}

        def seconds(stage: int, *kinds: Work) -> float:
            return sum(medians.get((stage, kind), 0.0) for kind in kinds)

        return tuple(
            StageCost(
                seconds(stage, Work.FORWARD),
                seconds(stage, Work.BACKWARD, Work.INPUT_BACKWARD),
                seconds(stage, Work.WEIGHT_BACKWARD),
            )
            for stage in range(stages)
        )


def compute_difference(predicted: Forecast, measured: MeasuredStep) -> float:
    """The seconds by which the simulated step is longer with measured times of the stages than with predicted times."""
    line, setting = predicted.timeline, predicted.setting
    costs = measured.stage_costs(line.order.stages)
    return step_time(line.order, costs, predicted.transfer, setting.overlaps) - line.step


def measured_lines(predicted: Forecast, measured: MeasuredStep) -> list[str]:
    """Lines about the measured and the predicted step, and the causes of the difference."""
    line, before = measured.timeline(predicted.timeline), predicted.timeline
    more = line.step - before.step
    compute = compute_difference(predicted, measured)
    return [
        f"measured step {time_text(line.step)}, bubble {line.bubble:.1%}: {abs(more) / before.step:.1%} "
        f"{'longer' if more >= 0 else 'shorter'} than predicted ({time_text(before.step)}, {before.bubble:.1%})",
        f"  {_signed(compute)} because the stages take longer or shorter than the sum of their layers",
        f"  {_signed(more - compute)} between the actions: launches of kernels, and transfers slower than predicted",
    ]


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{time_text(abs(seconds))}"


def measured_table(predicted: Forecast, measured: MeasuredStep) -> tuple[list[str], list[list[str]]]:
    """Head and rows: compute, bubble and (if known) peak memory of each rank, predicted and measured."""
    line = measured.timeline(predicted.timeline)
    bytes_known = any(measured.peaks)
    head = ["rank", "compute: predicted", "measured", "bubble: predicted", "measured"]
    rows = []
    for rank, (one, other) in enumerate(zip(predicted.timeline.uses, line.uses)):
        row = [str(rank), time_text(one.busy), time_text(other.busy), f"{one.bubble:.1%}", f"{other.bubble:.1%}"]
        rows.append([*row, bytes_text(one.peak), bytes_text(other.peak)] if bytes_known else row)
    return [*head, "peak memory: predicted", "measured"] if bytes_known else head, rows


def measured_value(predicted: Forecast, measured: MeasuredStep) -> dict[str, Any]:
    """The measured step for JSON: times in seconds, memory in bytes, bubbles from 0 to 1."""
    line = measured.timeline(predicted.timeline)
    compute = compute_difference(predicted, measured)
    return {
        "step": line.step,
        "bubble": line.bubble,
        "difference": {"compute": compute, "between_actions": line.step - predicted.timeline.step - compute},
        "by_rank": [{"compute": use.busy, "bubble": use.bubble, "peak_bytes": use.peak} for use in line.uses],
        "actions": actions_value(line),
    }
