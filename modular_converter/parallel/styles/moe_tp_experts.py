"""``moe_tp_experts``: a module of experts; each rank holds a slice of every expert, and the output is summed once."""

from __future__ import annotations

from typing import Any

from modular_converter.parallel.styles.all_reduce import summed_output
from modular_converter.parallel.styles.style import SUM_OVER_RANKS, Enters, Example, Inference, Level, Site, Style


def entered_inputs(
    site: Site, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The inputs (tokens, and the weights of their routes), entering the sharded region."""
    return site.region.enter(args), {key: site.region.enter(value) for key, value in kwargs.items()}


MOE_TP_EXPERTS = Style(
    name="moe_tp_experts",
    does="a module of experts: inputs enter the sharded region, its output is summed",
    level=Level.MODULE,
    enters=Enters.INPUTS,
    collective=SUM_OVER_RANKS,
    inference=Inference.SUMMED_OUTPUT,
    before=entered_inputs,
    after=summed_output,
    example=Example(
        "self.router, self.experts = nn.Linear(8, 3), Experts()",
        "return self.experts(x, weights=self.router(x).softmax(-1))",
        "rule experts.up colwise\nrule experts.down rowwise\nrule experts moe_tp_experts",
        modules="""
class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Parameter(torch.randn(3, 16, 8)), nn.Parameter(torch.randn(3, 8, 16))

    def forward(self, x, weights):
        hidden = torch.relu(torch.einsum("ti,eoi->teo", x, self.up))
        return torch.einsum("teo,eio,te->ti", hidden, self.down, weights)
""",
    ),
)
