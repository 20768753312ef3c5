"""Linear layers with int8 weights, as plain parameters: integers, and a scale for each output feature."""

from __future__ import annotations

import torch

from modular_converter.parallel.errors import ApplyError


_LARGEST = 127


class Int8Linear(torch.nn.Module):
    """``x @ weight.T * scale + bias``, in the type of ``x`` and in the same steps as torchao.

    Inputs of integers are refused: code that converts its input to ``weight.dtype`` means the type before int8.

    Attributes:
        weight: int8, ``[out_features, in_features]``.
        scale: floating, ``[out_features]``.
        bias: ``[out_features]``, or None.
    """

    weight: torch.nn.Parameter
    scale: torch.nn.Parameter
    bias: torch.nn.Parameter | None

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return self.finished(self.product(input, self.weight), input)

    @staticmethod
    def product(input: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """The product with the integers, ``[rows, out_features]``: a sum over input features, which ranks can share."""
        if not input.is_floating_point():
            raise ApplyError(
                f"an int8 layer got an input of {input.dtype}: the model's code gives its input the type of a weight, which "
                "is int8 here; leave this layer out of the quantisation"
            )
        return torch.mm(input.reshape(-1, input.shape[-1]), weight.t().to(input.dtype))

    def finished(self, product: torch.Tensor, input: torch.Tensor) -> torch.Tensor:
        """The output of the layer, from the whole product."""
        found = (product * self.scale.to(product.dtype)).reshape(*input.shape[:-1], product.shape[-1])
        return (found if self.bias is None else found + self.bias).to(input.dtype)

    def draw(self, generator: torch.Generator) -> None:
        """Draw random weights, whose floating values are of the size ``1 / sqrt(in_features)``."""
        with torch.no_grad():
            self.weight.copy_(torch.randint(-_LARGEST, _LARGEST + 1, self.weight.shape, generator=generator))
            sizes = torch.rand(self.scale.shape, generator=generator) + 0.5
            self.scale.copy_(sizes * 1.7 / _LARGEST / self.weight.shape[1] ** 0.5)


def become_int8(module: torch.nn.Module, weight: torch.Tensor, scale: torch.Tensor) -> None:
    """Turn a linear layer into an ``Int8Linear`` in place, with its bias unchanged.

    Args:
        weight: int8, ``[out_features, in_features]``.
        scale: ``[out_features]``.
    """
    bias = module._parameters["bias"]
    module.__class__ = Int8Linear
    module._parameters.clear()
    for name, value in (("weight", weight), ("scale", scale)):
        module._parameters[name] = torch.nn.Parameter(value, requires_grad=False)
    module._parameters["bias"] = bias
