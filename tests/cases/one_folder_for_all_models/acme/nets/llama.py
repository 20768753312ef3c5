from dataclasses import dataclass

from torch import nn

from .base import Net


@dataclass
class Config:
    hidden_size: int = 8


class Attention(Net):
    """The attention of Llama."""

    def __init__(self, config: Config):
        self.q_proj = nn.Linear(config.hidden_size, config.hidden_size)
        self.o_proj = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x):
        return self.o_proj(self.q_proj(x))


class LlamaModel(Net):
    def __init__(self, config: Config):
        self.attention = Attention(config)
