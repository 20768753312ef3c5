"""Measured times of layers, from a JSON file."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from typing import Any

from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.schedule.stage_costs import NOTHING, ChainCosts, StageCost


FORM = '{"before": [0.001, 0.002], "layers": [[0.01, 0.02], ...], "after": [0.004, 0.008]}'


def read_layer_times(path: str) -> ChainCosts:
    """Costs without bytes, from a file like ``FORM`` with seconds of forward and backward for one micro-batch.

    Three numbers are forward, backward of inputs and backward of weights; of two numbers, the second is halved for both
    parts of the backward. ``before`` and ``after`` may be absent.

    Raises ``ScheduleError`` if the file cannot be read or has another form.
    """
    try:
        if os.path.getsize(path) > 10**7:
            raise ScheduleError(f"{path}: larger than 10 MB; give one pair of numbers a layer")
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise ScheduleError(f"{path}: cannot be read as JSON: {error}") from error
    if not isinstance(value, dict) or not {"layers"} <= set(value) <= {"before", "layers", "after"}:
        raise ScheduleError(f"{path}: write it like {FORM}")
    layers = value["layers"]
    if not isinstance(layers, list) or not layers:
        raise ScheduleError(f"{path}: `layers` has no entry; write it like {FORM}")
    return ChainCosts(
        tuple(_cost(path, f"layers[{number}]", times) for number, times in enumerate(layers)),
        _cost(path, "before", value["before"]) if "before" in value else NOTHING,
        _cost(path, "after", value["after"]) if "after" in value else NOTHING,
    )


def with_times(costs: ChainCosts, times: ChainCosts, path: str) -> ChainCosts:
    """Counted costs with the measured times of a file. Raises ``ScheduleError`` if the numbers of layers differ."""
    if len(costs.layers) != len(times.layers):
        raise ScheduleError(f"{path}: has {len(times.layers)} layers, the model has {len(costs.layers)}")

    def timed(cost: StageCost, time: StageCost) -> StageCost:
        return replace(
            cost, forward=time.forward, input_backward=time.input_backward, weight_backward=time.weight_backward
        )

    layers = tuple(map(timed, costs.layers, times.layers))
    return replace(
        costs, layers=layers, before=timed(costs.before, times.before), after=timed(costs.after, times.after)
    )


def _cost(path: str, place: str, times: Any) -> StageCost:
    numbers = times if isinstance(times, list) else []
    right = all(isinstance(n, (int, float)) and not isinstance(n, bool) and 0 <= n < math.inf for n in numbers)
    if len(numbers) not in (2, 3) or not right:
        raise ScheduleError(f"{path}: {place}: seconds of forward and backward expected, such as [0.01, 0.02]")
    forward, *back = map(float, numbers)
    return StageCost(forward, *(back if len(back) == 2 else (back[0] / 2, back[0] / 2)))
