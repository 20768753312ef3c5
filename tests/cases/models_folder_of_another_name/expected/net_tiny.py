# This file was automatically generated from lib/acme/nets/tiny/modular_tiny.py.
# Do not edit it, since it is generated again: change modular_tiny.py, and run `modular-convert`.
from baselib.activations import ACT2FN
from torch import nn

from ...resources import res_init
from .settings_tiny import TinySettings


class TinyBlock(nn.Module):
    def __init__(self, settings: TinySettings):
        super().__init__()
        self.inner = res_init(nn.Linear(settings.width, settings.width))


class TinyMLP(nn.Module):
    def forward(self, x):
        return ACT2FN["silu"](x)
