import torch
from torch import nn

from ..llama.modeling_llama import rotate


FACTOR = 2
"""A string of its own."""


def grow(x):
    # Twice.
    return FACTOR * x


@torch.no_grad()
class NewThing(nn.Module):
    """As written."""

    pass

    def __init__(self):
        super().__init__()

    def forward(self, x):
        nn.Module.forward(self, x)
        return rotate(grow(x))
