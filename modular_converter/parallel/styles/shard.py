"""``shard``: a parameter of which each rank needs only its own shard, such as a bias or a number for each head."""

from __future__ import annotations

from modular_converter.parallel.styles.style import Example, Inference, Level, Side, Style


SHARD = Style(
    name="shard",
    does="a parameter sharded along one dimension, used by its own shard only",
    level=Level.WEIGHT,
    side=Side.FIRST,
    library=False,
    inference=Inference.SILENT,
    example=Example(
        "self.up, self.down, self.scale = nn.Linear(8, 16), nn.Linear(16, 8), nn.Parameter(torch.randn(4, 1))",
        "heads = self.up(x).view(*x.shape[:-1], -1, 4) * self.scale\nreturn self.down(heads.flatten(-2))",
        "rule up colwise\nrule scale shard dim=0\nrule down rowwise",
    ),
)
