"""Costs in a pipeline: records of times and bytes of stages and layers, the work of a chain, and measured times of layers."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from modular_converter.parallel.errors import ScheduleError
from modular_converter.parallel.pipeline.chain import cuts_of_balance, spans


@dataclass(frozen=True)
class StageCost:
    """Time and bytes of a layer, or of a stage, for one micro-batch.

    Attributes:
        forward, input_backward, weight_backward: seconds; a whole backward takes the sum of the last two.
        activations: bytes that the forward keeps for the backward.
        state: bytes of weights, gradients and optimizer state, for any number of micro-batches.
        gradients: the bytes in ``state`` that the first backward of weights allocates.
        between_halves: bytes beside the activations that the backward of inputs keeps for the backward of weights.
        temporary: bytes that the backward needs only while it runs.
    """

    forward: float
    input_backward: float
    weight_backward: float
    activations: float = 0.0
    state: float = 0.0
    gradients: float = 0.0
    between_halves: float = 0.0
    temporary: float = 0.0

    @property
    def compute(self) -> float:
        """Seconds of forward and backward."""
        return self.forward + self.input_backward + self.weight_backward

    def __add__(self, other: StageCost) -> StageCost:
        sums = {name: value + getattr(other, name) for name, value in vars(self).items()}
        return StageCost(**(sums | {"temporary": max(self.temporary, other.temporary)}))


NOTHING = StageCost(0.0, 0.0, 0.0)


@dataclass(frozen=True)
class ChainCosts:
    """The costs of a model that is a chain, for one micro-batch.

    Attributes:
        layers: of each layer, in order.
        before: of the parts before the layers, on the first stage (embeddings).
        after: of the parts after the layers, on the last stage (the last norm, the head, the loss).
        transfer: seconds for the output of a layer, or its gradient, between two ranks.
        shared: bytes of state that both ``before`` and ``after`` count (tied embeddings); a rank with both has them once.
        result: bytes of the model's output for one micro-batch, which the last stage keeps.
        output: bytes that a stage hands to the next stage for one micro-batch.
    """

    layers: tuple[StageCost, ...]
    before: StageCost = NOTHING
    after: StageCost = NOTHING
    transfer: float = 0.0
    shared: float = 0.0
    result: float = 0.0
    output: float = 0.0

    def stages(self, balance: Sequence[int]) -> tuple[StageCost, ...]:
        """The cost of each stage, from the number of layers of each stage.

        Raises ``ScheduleError`` if the numbers do not add up to the layers, or a number is below 1.
        """
        cuts = cuts_of_balance(balance, len(self.layers), len(balance))
        found = [sum((self.layers[i] for i in span), NOTHING) for span in spans(cuts, len(self.layers))]
        found[0] = self.before + found[0]
        found[-1] = found[-1] + self.after
        return tuple(found)


def even_costs(layers: int) -> ChainCosts:
    """The costs of equal layers: each takes 1 for the forward and 1 + 1 for the backward; transfers take no time."""
    return ChainCosts((StageCost(1.0, 1.0, 1.0),) * layers)


@dataclass(frozen=True)
class PartWork:
    """The work of a layer, or of the parts before or after the layers, for one micro-batch.

    Attributes:
        weight_flops: floating-point operations of products with weights, in a forward; the backward of inputs and the
            backward of weights take as many each.
        other_flops: floating-point operations of products between activations, such as in attention; the backward of
            inputs takes twice as many.
        activations: bytes that the forward keeps for the backward.
        parameters: the number of parameters.
        weight_results: bytes of the results of operations with weights; the backward of inputs computes gradients of the
            same size, which the backward of weights needs.
        temporary: bytes that the backward of a log-softmax needs meanwhile: two gradients as large as its result.
    """

    weight_flops: float
    other_flops: float
    activations: float
    parameters: int
    weight_results: float = 0.0
    temporary: float = 0.0

    def cost(self, flops: float, bytes_per_parameter: float, bytes_per_gradient: float = 0.0) -> StageCost:
        """The times on a device with ``flops`` operations a second, and the bytes."""
        return StageCost(
            (self.weight_flops + self.other_flops) / flops,
            (self.weight_flops + 2 * self.other_flops) / flops,
            self.weight_flops / flops,
            self.activations,
            self.parameters * bytes_per_parameter,
            self.parameters * bytes_per_gradient,
            self.weight_results,
            self.temporary,
        )


@dataclass(frozen=True)
class ChainWork:
    """The work of a whole model.

    Attributes:
        model: the name of its class.
        path: of its list of layers.
        shared: the number of parameters that both ``before`` and ``after`` count, such as tied embeddings.
        output: bytes that a layer hands to the next layer for one micro-batch.
        length: tokens of a row; 0 for a model without tokens.
        result: bytes of the model's output for one micro-batch.
    """

    model: str
    path: str
    layers: tuple[PartWork, ...]
    before: PartWork
    after: PartWork
    shared: int
    output: float
    length: int = 0
    result: float = 0.0

    def costs(
        self, tflops: float, bandwidth: float, bytes_per_parameter: float, bytes_per_gradient: float = 0.0
    ) -> ChainCosts:
        """The times and bytes on devices.

        Args:
            tflops: the speed of a device in matrix products, in 10^12 operations a second.
            bandwidth: between two ranks, in 10^9 bytes a second.
            bytes_per_parameter: of weight, gradient and optimizer state together.
            bytes_per_gradient: the part of the gradient in ``bytes_per_parameter``.
        """
        parts = (self.before, *self.layers, self.after)
        before, *layers, after = (one.cost(tflops * 1e12, bytes_per_parameter, bytes_per_gradient) for one in parts)
        return ChainCosts(
            tuple(layers),
            before,
            after,
            self.output / (bandwidth * 1e9),
            self.shared * bytes_per_parameter,
            self.result,
            self.output,
        )

    @property
    def parameters(self) -> int:
        return sum(part.parameters for part in (self.before, *self.layers, self.after)) - self.shared

    @property
    def flops(self) -> float:
        """Floating-point operations of a forward pass of one micro-batch."""
        parts = (self.before, *self.layers, self.after)
        return sum(part.weight_flops + part.other_flops for part in parts)


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

    before, after = timed(costs.before, times.before), timed(costs.after, times.after)
    return replace(costs, layers=tuple(map(timed, costs.layers, times.layers)), before=before, after=after)


def _cost(path: str, place: str, times: Any) -> StageCost:
    numbers = times if isinstance(times, list) else []
    right = all(isinstance(n, (int, float)) and not isinstance(n, bool) and 0 <= n < math.inf for n in numbers)
    if len(numbers) not in (2, 3) or not right:
        raise ScheduleError(f"{path}: {place}: seconds of forward and backward expected, such as [0.01, 0.02]")
    forward, *back = map(float, numbers)
    return StageCost(forward, *(back if len(back) == 2 else (back[0] / 2, back[0] / 2)))
