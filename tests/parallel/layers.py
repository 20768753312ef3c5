"""Small models for the lean forms of layers, one a way in which code uses a weight. Ranks import them by name."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from transformers.pytorch_utils import Conv1D


class Doubled(nn.Linear):
    """A subclass that adds to its parent's forward."""

    def forward(self, input):
        return 2 * super().forward(input)


class Scaled(nn.Embedding):
    def forward(self, input):
        return super().forward(input) * 3.0


class Own(nn.Linear):
    """A subclass with a forward of its own."""

    def forward(self, input):
        return F.linear(input, self.weight, self.bias) + 1


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Parameter(torch.randn(3, 16, 8)), nn.Parameter(torch.randn(3, 8, 16))

    def forward(self, x):
        return torch.einsum("beh,eoh->bo", torch.relu(torch.einsum("bi,ehi->beh", x, self.up)), self.down)


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.scaled = nn.Embedding(12, 8), Scaled(12, 8)
        self.up, self.down, self.twice = nn.Linear(8, 16), nn.Linear(16, 8), Doubled(16, 8)
        self.own, self.other = Own(16, 8), nn.Linear(16, 8, bias=False)
        self.into, self.out = Conv1D(16, 8), Conv1D(8, 16)
        self.sliced, self.gathered, self.convolved = nn.Linear(8, 8), nn.Linear(8, 4), Conv1D(6, 8)
        self.latent, self.query = nn.Parameter(torch.randn(5, 8)), nn.Linear(8, 8)
        self.experts = Experts()
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.words.weight
        for parameter in self.parameters():
            parameter.data.normal_(generator=torch.Generator().manual_seed(parameter.numel()))

    def forward(self, ids):
        x = self.words(ids) + self.scaled(ids)
        hidden = torch.relu(self.up(x))
        found = {
            "down": self.down(hidden),
            "twice": self.twice(hidden),
            "own": self.own(hidden),
            "elsewhere": F.linear(hidden, self.other.weight),
            "convolved pair": self.out(torch.relu(self.into(x))),
            "sliced": self.sliced(x),
            "gathered": self.gathered(x),
            "convolved": self.convolved(x),
            "latent": self.query(self.latent),
            "experts": self.experts(x.flatten(0, 1)),
        }
        return {**found, "head": self.head(found["down"])}


PLAN = """plan layers
rule words embedding_rowwise
rule scaled embedding_rowwise
rule up colwise
rule down rowwise
rule twice rowwise
rule own rowwise
rule other rowwise
rule into colwise dim=1
rule out rowwise dim=0
rule sliced rowwise_split_input
rule gathered colwise_gather_output
rule convolved colwise_gather_output dim=1
rule latent shard dim=1
rule query rowwise
rule experts.up shard dim=1
rule experts.down shard dim=2
rule experts moe_tp_experts
rule head colwise_gather_output
attribute into:nf
attribute convolved:nf
"""
