"""``replicated_with_grad_allreduce``: a whole weight inside a sharded region, such as a norm of each head."""

from __future__ import annotations

from typing import Any

from modular_converter.parallel.styles.style import Enters, Example, Inference, Level, Style, WeightUse


def _forward(use: WeightUse) -> Any:
    """The result of any function with the weight; the gradient is summed, since each rank has only its own heads."""
    args, kwargs = use.weights_entered()
    return use.function(*args, **kwargs)


REPLICATED_WITH_GRAD_ALLREDUCE = Style(
    name="replicated_with_grad_allreduce",
    does="whole, its gradient summed over the ranks",
    level=Level.WEIGHT,
    enters=Enters.WEIGHT,
    inference=Inference.SILENT,
    forward=_forward,
    example=Example(
        "self.up, self.norm, self.down = nn.Linear(8, 16), nn.LayerNorm(4), nn.Linear(16, 8)",
        "heads = self.norm(self.up(x).view(*x.shape[:-1], -1, 4))\nreturn self.down(heads.flatten(-2))",
        "rule up colwise\nrule norm replicated_with_grad_allreduce\nrule down rowwise",
    ),
)
