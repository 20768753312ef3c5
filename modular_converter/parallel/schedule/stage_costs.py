"""The costs of a stage of a pipeline and of its layers: records of times and bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from modular_converter.parallel.pipeline.balance import cuts_of_balance, spans


@dataclass(frozen=True)
class StageCost:
    """Time and bytes of a layer, or of a stage, for one micro-batch.

    Attributes:
        forward, input_backward, weight_backward: seconds; a whole backward pass takes the sum of the latter two.
        activations: bytes that its forward keeps for its backward.
        state: bytes of weights, gradients and optimizer state, whatever the number of micro-batches.
        gradients: bytes of ``state`` that the first backward of weights makes.
        between_halves: bytes that the backward of inputs leaves to that of weights, besides the activations.
        temporary: bytes that its backward needs while it runs.
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
        layers: one a layer, in order.
        before: outside of the layers, at the first stage (embeddings).
        after: outside of the layers, at the last stage (the last norm, the head, the loss).
        transfer: seconds that the output of a layer needs to the next rank; its gradient needs as long.
        shared: bytes of state that both ``before`` and ``after`` count (tied embeddings): one rank holds them once.
        result: bytes of the output of a micro-batch, which the last stage keeps until its backward, or all of them.
        output: bytes that a stage hands to the next one for a micro-batch.
    """

    layers: tuple[StageCost, ...]
    before: StageCost = NOTHING
    after: StageCost = NOTHING
    transfer: float = 0.0
    shared: float = 0.0
    result: float = 0.0
    output: float = 0.0

    def stages(self, balance: Sequence[int]) -> tuple[StageCost, ...]:
        """The cost of each stage, from its number of layers.

        Raises ``ScheduleError`` if the numbers do not add up to the layers, or one is below 1.
        """
        cuts = cuts_of_balance(balance, len(self.layers), len(balance))
        found = [sum((self.layers[i] for i in span), NOTHING) for span in spans(cuts, len(self.layers))]
        found[0] = self.before + found[0]
        found[-1] = found[-1] + self.after
        return tuple(found)


def even_costs(layers: int) -> ChainCosts:
    """Equal layers without a model: a stage of one layer takes 1 forward, and 1 + 1 backward; transfers are free."""
    return ChainCosts((StageCost(1.0, 1.0, 1.0),) * layers)
