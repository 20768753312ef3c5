"""A measured step beside the predicted step, and the causes of the difference."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass, replace
from typing import Any

from modular_converter.parallel.schedule.forecast import Forecast
from modular_converter.parallel.schedule.orders import Work
from modular_converter.parallel.schedule.report import actions_value, bytes_text, time_text
from modular_converter.parallel.schedule.simulate import Timed, Timeline, step_time
from modular_converter.parallel.schedule.stage_costs import StageCost


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
