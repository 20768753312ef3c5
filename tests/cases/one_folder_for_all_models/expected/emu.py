# This file was automatically generated from acme/nets/modular_emu.py.
# Do not edit it, since it is generated again: change modular_emu.py, and run `modular-convert`.
from dataclasses import dataclass

from torch import nn

from .base import Net


@dataclass
class Config:
    hidden_size: int = 8


class Attention(Net):
    """The attention of Emu."""

    def __init__(self, config: Config):
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.k_norm = nn.LayerNorm(config.hidden_size)

    def forward(self, x):
        return self.k_norm(self.q_proj(x))


class EmuModel(Net):
    def __init__(self, config: Config):
        self.attention = Attention(config)


__all__ = ["EmuModel"]
