"""Advice from a comparison of simulated steps: problems of a pipeline, and their remedies."""

from __future__ import annotations

from dataclasses import replace

from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.schedule.forecast import Forecast, ScheduleComparison, forecast
from modular_converter.parallel.schedule.report import bytes_text
from modular_converter.parallel.schedule.stage_costs import ChainCosts


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
    said = f"ranks {', '.join(map(str, full))} need up to {bytes_text(max(use.peak for use in uses))}, a device has "
    said += bytes_text(memory)
    if any(use.state > memory for use in uses):
        return [f"{said}, and weights, gradients and optimizer state alone are more; take more ranks, or divide them"]
    fits = [
        name
        for name, other in comparison.others
        if not isinstance(other, str) and max(use.peak for use in other.timeline.uses) <= memory
    ]
    others = f"{', '.join(fits)} would fit; or " if fits else ""
    return [f"{said}; {others}take smaller micro-batches, more ranks, or activation checkpointing"]


def _bubble(chosen: Forecast, costs: ChainCosts) -> list[str]:
    bubble, setting = chosen.timeline.bubble, chosen.setting
    if bubble <= HIGH_BUBBLE:
        return []
    said = f"the ranks are idle for {bubble:.0%} of the step"
    chunks = setting.chunks
    while (chunks := chunks * 2) <= 64 * setting.ranks:
        try:
            less = forecast(replace(setting, chunks=chunks), costs, chosen.balance).timeline.bubble
        except ScheduleError:  # the schedule does not allow this number of micro-batches
            continue
        if less <= GOOD_BUBBLE:
            return [f"{said}; {chunks} micro-batches of the same size make it {less:.0%}"]
    return [f"{said}, and more micro-batches alone do not change it: see the balance and the transfers"]


def _imbalance(comparison: ScheduleComparison) -> list[str]:
    chosen, best = comparison.chosen, comparison.best
    slowest, excess = _excess(chosen)
    if excess <= DOMINANT:
        return []
    said = f"rank {slowest} has {excess:.2f} times the mean compute of the ranks and sets the pace"
    gain = 1 - best.timeline.step / chosen.timeline.step
    if gain > 0.01:
        return [f"{said}; --balance {','.join(map(str, best.balance))} shortens the step by {gain:.0%}"]
    return [
        f"{said}, and no balance that was found is better: a layer, the embeddings or the head is too large for one of "
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
