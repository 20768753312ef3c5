"""``packed_colwise``: several fused layers; the output features of each block are sharded separately."""

from __future__ import annotations

from dataclasses import replace

from modular_converter.parallel.styles.colwise import COLWISE
from modular_converter.parallel.styles.style import Example


PACKED_COLWISE = replace(
    COLWISE,
    name="packed_colwise",
    does="as colwise, each of the equal parts of the output sharded on its own",
    acts_as="colwise",
    packed_as="",
    packed=True,
    torch=None,
    example=Example(
        "self.inner, self.gate_up, self.down = nn.Linear(8, 8), nn.Linear(8, 32), nn.Linear(16, 8)",
        "gate, up = self.gate_up(self.inner(x)).chunk(2, -1)\nreturn self.down(torch.relu(gate) * up)",
        "rule gate_up packed_colwise parts=1:1\nrule down rowwise",
    ),
)
