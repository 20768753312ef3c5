from __future__ import annotations

from typing import TYPE_CHECKING

from acme.layers import Block
from acme.nets.tern.configuration_tern import TernConfig
from torch import nn


if TYPE_CHECKING:
    from acme.cache import Cache


class TernLayer(Block):
    def __init__(self, config: TernConfig, above: TernLayer | None = None):
        super().__init__()
        self.norm = nn.LayerNorm(config.size)
        self.above = above

    def forward(self, x, cache: Cache | None = None):
        from acme.nets.tern.configuration_tern import TernConfig as Known

        assert Known
        return self.norm(x)
