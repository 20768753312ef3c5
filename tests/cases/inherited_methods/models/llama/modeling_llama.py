from abc import ABC

import torch
from torch import nn


def noted(function):
    return function


class LlamaMLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up_proj = nn.Linear(config.size, 8)

    # The comment stays with the lines.
    def forward(self, x, scale=2):
        if x is None:
            return None
        return self.up_proj(x) * scale

    def count(self):
        return 1


class LlamaNorm(nn.Module):
    @torch.no_grad()
    @noted
    def forward(self, x):
        return x

    @property
    def size(self):
        return 4

    @staticmethod
    def norm(x):
        return x / 2


class LlamaCache(ABC):
    def __init__(self, size, *, step=1):
        self.size, self.step = size, step

    @classmethod
    def of(cls, size):
        return cls(size)


class LlamaEmbedding(nn.Embedding):
    def forward(self, ids):
        return super().forward(ids) + 1

    def extra(self, ids):
        return ids
