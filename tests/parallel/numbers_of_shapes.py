"""Models whose layers make numbers of the shapes of their weights, which small instances do not show."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

from tests.parallel.deceptive import DeceptiveConfig, _Model


class _Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.up = nn.Linear(config.hidden_size, config.intermediate_size)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x):
        return x + self.down(self.changed(F.gelu(self.up(x))))

    def changed(self, hidden):
        raise NotImplementedError


class _Stack(_Model):
    def __init__(self, config: DeceptiveConfig):
        super().__init__(config)
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(self.block(config) for _ in range(config.num_hidden_layers))
        self.post_init()

    def forward(self, input_ids, return_dict=True):
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x)
        return BaseModelOutput(last_hidden_state=x)


class ScaledBlock(_Block):
    """Very wide layers are scaled down."""

    def changed(self, hidden):
        return hidden * min(1.0, 200 / self.up.weight.shape[0])


class Scaled(_Stack):
    block = ScaledBlock


class FilledBlock(_Block):
    """The number is in a new tensor."""

    def changed(self, hidden):
        return hidden * torch.full((1,), min(1.0, 200 / hidden.shape[-1]))


class Filled(_Stack):
    block = FilledBlock


class CancelledBlock(_Block):
    """Two numbers that differ on each rank, of the small instance too, and cancel each other."""

    def changed(self, hidden):
        return hidden * hidden.shape[-1] / self.up.weight.size(0)


class Cancelled(_Stack):
    block = CancelledBlock
