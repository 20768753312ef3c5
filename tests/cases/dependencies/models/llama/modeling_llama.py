import math

import torch
from torch import nn

from .configuration_llama import LlamaConfig


LIMIT = 10
TABLE = {"a": LIMIT}
TABLE["b"] = 2
UNUSED = 1


def helper_of_rotate(x):
    return math.floor(x)


def rotate(x):
    return helper_of_rotate(x) + TABLE["a"]


def attend(x):
    """Said of `unrelated`, which is only text."""
    return rotate(x)


def unrelated(x):
    return UNUSED


class LlamaNorm(nn.Module):
    def forward(self, x):
        return torch.rsqrt(x)


class LlamaAttention(nn.Module):
    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.norm = LlamaNorm()

    def forward(self, x):
        return attend(x)


class LlamaUnused(nn.Module):
    pass
