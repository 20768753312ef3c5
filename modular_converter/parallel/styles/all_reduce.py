"""``all_reduce``: a module whose output is a partial sum."""

from __future__ import annotations

from typing import Any

from modular_converter.parallel.styles.style import SUM_OVER_RANKS, Example, Inference, Level, Site, Style


def summed_output(site: Site, result: Any) -> Any:
    """The output, or the first of several outputs, summed over the ranks."""
    import torch

    if isinstance(result, torch.Tensor):
        return site.region.sum(result)
    return site.region.sum(result[0]), *result[1:]


ALL_REDUCE = Style(
    name="all_reduce",
    does="the module's output is a partial sum: it is summed over the ranks",
    level=Level.MODULE,
    collective=SUM_OVER_RANKS,
    inference=Inference.SUMMED_OUTPUT,
    after=summed_output,
    example=Example(
        "self.mixer, self.out = Mixer(), nn.Linear(8, 8)",
        "return self.out(torch.relu(self.mixer(x)))",
        "rule mixer.up colwise\nrule mixer.down shard dim=0\nrule mixer all_reduce",
        modules="""
class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Parameter(torch.randn(16, 8))

    def forward(self, x):
        return torch.relu(self.up(x)) @ self.down
""",
    ),
)
