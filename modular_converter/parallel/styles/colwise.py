"""``colwise``: each rank computes its own output features, from a whole input."""

from __future__ import annotations

from typing import Any

from modular_converter.parallel.styles.style import (
    PRODUCT,
    Enters,
    Example,
    Inference,
    Level,
    Side,
    Style,
    TorchStyle,
    WeightUse,
)


def own_features(use: WeightUse) -> Any:
    """The product with this rank's shard; the gradient of the input is summed over the ranks."""
    return NotImplemented if use.kind != PRODUCT else use.function(*use.entered(), **use.kwargs)


COLWISE = Style(
    name="colwise",
    does="output features sharded, each rank keeps its own",
    level=Level.WEIGHT,
    enters=Enters.OPERANDS,
    side=Side.OUTPUT,
    torch=TorchStyle("ColwiseParallel"),
    inference=Inference.SILENT,
    packed_as="packed_colwise",
    forward=own_features,
    example=Example(
        "self.inner, self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8)",
        "return self.down(torch.relu(self.up(self.inner(x))))",
        "rule up colwise\nrule down rowwise",
    ),
)
