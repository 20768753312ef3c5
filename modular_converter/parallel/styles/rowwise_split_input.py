"""``rowwise_split_input``: as ``rowwise``, from an input that is whole on each rank."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from modular_converter.parallel.styles.rowwise import ROWWISE, summed_product
from modular_converter.parallel.styles.style import PRODUCT, Enters, Example, Inference, TorchStyle, WeightUse


def _forward(use: WeightUse) -> Any:
    """The sum of the products with this rank's slice of the input."""
    if use.kind != PRODUCT:
        return NotImplemented
    first, last = use.own
    return summed_product(use, lambda value: use.region.enter(value)[..., first:last])


ROWWISE_SPLIT_INPUT = replace(
    ROWWISE,
    name="rowwise_split_input",
    does="as rowwise, from a whole input that is sliced first",
    enters=Enters.SLICE,
    torch=TorchStyle("RowwiseParallel", "input_layouts"),
    inference=Inference.SLICED_SUMMED_PRODUCT,
    packed_as="",
    forward=_forward,
    example=Example(
        "self.inner, self.out = nn.Linear(8, 16), nn.Linear(16, 8)",
        "return self.out(self.inner(x).softmax(-1))",
        "rule out rowwise_split_input",
    ),
)
