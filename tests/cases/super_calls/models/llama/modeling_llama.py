import torch
from torch import nn


class LlamaModel(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.size = config.size
        # Said of the embedding.
        self.embed = nn.Embedding(config.size, 2)
        self.typed: int = 3
        if config.deep:
            self.deep = True
        self.norm = nn.LayerNorm(2)
        self.post_init()

    def forward(self, x, scale=1):
        """Forward of llama."""
        y = self.embed(x)
        z = y * scale
        return self.norm(z)

    def wrapped(self, x):
        y = x + 1
        return y

    def nested(self, x):
        return x
