"""The work of a model that is a chain: operations and bytes of its layers, and their times on a device."""

from __future__ import annotations

from dataclasses import dataclass

from modular_converter.parallel.schedule.stage_costs import ChainCosts, StageCost


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
        """Floating-point operations of a forward pass of one micro-batch."""
        parts = (self.before, *self.layers, self.after)
        return sum(part.weight_flops + part.other_flops for part in parts)
