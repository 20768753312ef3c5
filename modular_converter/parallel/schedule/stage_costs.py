"""The costs of a stage of a pipeline and of its layers: records of times and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modular_converter.parallel.pipeline.balance import cuts_of_balance, spans


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
        return StageCost(
            self.forward + other.forward,
            self.input_backward + other.input_backward,
            self.weight_backward + other.weight_backward,
            self.activations + other.activations,
            self.state + other.state,
            self.gradients + other.gradients,
            self.between_halves + other.between_halves,
            max(self.temporary, other.temporary),
        )


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
