"""``enter_input``: a module whose inputs are whole on each rank and enter a sharded region."""

from __future__ import annotations

from modular_converter.parallel.styles.moe_tp_experts import entered_inputs
from modular_converter.parallel.styles.style import Enters, Example, Inference, Level, Style


ENTER_INPUT = Style(
    name="enter_input",
    does="the module's inputs enter a sharded region: their gradients are summed over the ranks",
    level=Level.MODULE,
    enters=Enters.INPUTS,
    library=False,
    inference=Inference.SILENT,
    before=entered_inputs,
    example=Example(
        "self.inner, self.scale, self.down = nn.Linear(8, 4), Scale(), nn.Linear(16, 8)",
        "return self.down(self.scale(self.inner(x)))",
        "rule scale.weight shard dim=0\nrule scale enter_input\nrule down rowwise",
        modules="""
class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        return (x.unsqueeze(-2) * self.weight).flatten(-2)
""",
    ),
)
