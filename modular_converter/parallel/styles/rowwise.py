"""``rowwise``: each rank multiplies its own input features, and the partial outputs are summed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modular_converter.parallel.styles.style import (
    PRODUCT,
    SUM_OVER_RANKS,
    Example,
    Inference,
    Level,
    Side,
    Style,
    TorchStyle,
    WeightUse,
)


def _forward(use: WeightUse) -> Any:
    """The sum of the partial products; the input is sharded already."""
    return NotImplemented if use.kind != PRODUCT else summed_product(use, lambda value: value)


def summed_product(use: WeightUse, share: Callable[[Any], Any]) -> Any:
    """The sum of the partial products; the bias is whole and added once, after the sum.

    Args:
        share: the layer's input -> its features on this rank.
    """
    args, kwargs, name = list(use.args), dict(use.kwargs), use.name
    if name in ("addmm", "baddbmm"):
        bias, left, right = args[:3]
        return kwargs.get("alpha", 1) * use.region.sum(share(left) @ right) + kwargs.get("beta", 1) * bias
    bias = kwargs.pop("bias", None)
    if (name == "linear" or name.startswith("conv")) and len(args) > 2:
        bias, args[2] = args[2], None
    args[0] = share(args[0])
    result = use.region.sum(use.function(*args, **kwargs))
    if bias is None:
        return result
    if name.startswith("conv"):
        bias = bias.view(-1, *[1] * int(name[-2]))
    return result + bias


ROWWISE = Style(
    name="rowwise",
    does="input features sharded, partial outputs summed",
    level=Level.WEIGHT,
    side=Side.INPUT,
    collective=SUM_OVER_RANKS,
    torch=TorchStyle("RowwiseParallel"),
    inference=Inference.SUMMED_PRODUCT,
    packed_as="packed_rowwise",
    forward=_forward,
    example=Example(
        "self.up, self.down = nn.Conv1d(8, 16, 3), nn.Conv1d(16, 8, 3)",
        "return self.down(torch.relu(self.up(x)))",
        "rule up colwise dim=0\nrule down rowwise dim=1",
        (2, 8, 9),
    ),
)
