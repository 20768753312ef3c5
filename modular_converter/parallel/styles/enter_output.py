"""``enter_output``: a module whose output is whole on each rank and enters a sharded region."""

from __future__ import annotations

from typing import Any

from modular_converter.parallel.styles.style import Enters, Example, Inference, Level, Site, Style


def _after(site: Site, result: Any) -> Any:
    """The output; its gradient is summed over the ranks."""
    return site.region.enter(result)


ENTER_OUTPUT = Style(
    name="enter_output",
    does="the module's output enters a sharded region: its gradient is summed over the ranks",
    level=Level.MODULE,
    enters=Enters.OUTPUT,
    library=False,
    inference=Inference.SILENT,
    after=_after,
    example=Example(
        "self.key, self.query, self.down = nn.Linear(8, 4), nn.Linear(8, 16), nn.Linear(16, 8)",
        "heads = self.query(x).view(*x.shape[:-1], -1, 4) * self.key(x).unsqueeze(-2)\n"
        "return self.down(heads.flatten(-2))",
        "rule query colwise\nrule key enter_output\nrule down rowwise",
    ),
)
