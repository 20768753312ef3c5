# This file was automatically generated from lib/acme/nets/gull/modular_gull.py.
# Do not edit it, since it is generated again: change modular_gull.py, and run `modular-convert`.
from __future__ import annotations

from typing import TYPE_CHECKING

from acme.layers import Block
from acme.nets.gull.configuration_gull import GullConfig
from torch import nn


if TYPE_CHECKING:
    from acme.cache import Cache


class GullLayer(Block):
    def __init__(self, config: GullConfig, above: GullLayer | None = None):
        super().__init__()
        self.norm = nn.LayerNorm(config.size)
        self.above = above

    def forward(self, x, cache: Cache | None = None):
        from acme.nets.gull.configuration_gull import GullConfig as Known

        assert Known
        return self.norm(x)
