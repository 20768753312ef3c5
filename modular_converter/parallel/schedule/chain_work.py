"""The work of a model that is a chain: operations and bytes of its layers, and the times that they become."""

from __future__ import annotations

from dataclasses import dataclass

from modular_converter.parallel.schedule.stage_costs import ChainCosts, StageCost


@dataclass(frozen=True)
class PartWork:
    """A layer, or what stands before or after the layers, for one micro-batch.

    Attributes:
        weight_flops: floating-point operations of products with weights, in a forward; the backward of inputs and the
            backward of weights take as many each.
        other_flops: of products between activations, such as attention's; the backward of inputs takes twice as many.
        activations: bytes that the forward keeps for the backward.
        parameters: their number.
        weight_results: bytes of what operations with weights return; the backward of inputs makes as many of gradients, and
            that of weights needs them.
        temporary: bytes that the backward of a softmax of log-probabilities needs: two gradients as large as its result.
    """

    weight_flops: float
    other_flops: float
    activations: float
    parameters: int
    weight_results: float = 0.0
    temporary: float = 0.0

    def cost(self, flops: float, bytes_per_parameter: float, bytes_per_gradient: float = 0.0) -> StageCost:
        """Times on a device of so many operations a second."""
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
    """A whole model.

    Attributes:
        model: its class.
        path: the list of layers in it.
        shared: parameters that both ``before`` and ``after`` use and count, such as tied embeddings.
        output: bytes that a layer hands to the next for one micro-batch.
        length: tokens of a row; 0 for a model that takes none.
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
        """Times and bytes.

        Args:
            tflops: what a device reaches in such products, in 10^12 operations a second.
            bandwidth: between two ranks, in 10^9 bytes a second.
            bytes_per_parameter: of weight, gradient and optimizer state together.
            bytes_per_gradient: of it, those of the gradient.
        """
        flops = tflops * 1e12
        return ChainCosts(
            tuple(layer.cost(flops, bytes_per_parameter, bytes_per_gradient) for layer in self.layers),
            self.before.cost(flops, bytes_per_parameter, bytes_per_gradient),
            self.after.cost(flops, bytes_per_parameter, bytes_per_gradient),
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
        """Of one forward pass of a micro-batch."""
        parts = (self.before, *self.layers, self.after)
        return sum(part.weight_flops + part.other_flops for part in parts)
