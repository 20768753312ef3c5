"""``packed_rowwise``: a layer after several fused layers; its input features are sharded separately for each block."""

from __future__ import annotations

from dataclasses import replace

from modular_converter.parallel.styles.rowwise import ROWWISE
from modular_converter.parallel.styles.style import Example


PACKED_ROWWISE = replace(
    ROWWISE,
    name="packed_rowwise",
    does="as rowwise, each of the equal parts of the input sharded on its own",
    acts_as="rowwise",
    packed_as="",
    packed=True,
    torch=None,
    example=Example(
        "self.first, self.second, self.down = nn.Linear(8, 16), nn.Linear(8, 16), nn.Linear(32, 8)",
        "return self.down(torch.cat([torch.relu(self.first(x)), self.second(x)], -1))",
        "rule first colwise\nrule second colwise\nrule down packed_rowwise parts=1:1",
    ),
)
