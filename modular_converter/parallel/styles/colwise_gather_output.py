"""``colwise_gather_output``: each rank computes its own output features, which are then gathered on all ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from modular_converter.parallel.styles.colwise import COLWISE, own_features
from modular_converter.parallel.styles.style import GATHER_OVER_RANKS, Example, Inference, TorchStyle, WeightUse


def _forward(use: WeightUse) -> Any:
    """The product of ``colwise``, gathered along its output features."""
    result = own_features(use)
    if result is NotImplemented:
        return result
    return use.region.gather(result, 1 if use.name.startswith("conv") else -1, use.borders)


COLWISE_GATHER_OUTPUT = replace(
    COLWISE,
    name="colwise_gather_output",
    does="output features sharded, then gathered",
    collective=GATHER_OVER_RANKS,
    torch=TorchStyle("ColwiseParallel", "output_layouts"),
    inference=Inference.GATHERED_PRODUCT,
    packed_as="",
    forward=_forward,
    example=Example(
        "self.inner, self.head = nn.Linear(8, 8), nn.Linear(8, 12)",
        "return self.head(self.inner(x)).softmax(-1)",
        "rule head colwise_gather_output",
    ),
)
