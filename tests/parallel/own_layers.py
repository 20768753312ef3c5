"""Models of layers that transformers' own models do not have: rows of a largest norm, torch's encoder, routes by place."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from tests.parallel.deceptive import DeceptiveConfig, Stack


EXPERTS = 12


class ShortRows(nn.Embedding):
    """An embedding whose class gives its rows a largest norm, so that a lookup writes to its weight."""

    def __init__(self, rows, width):
        super().__init__(rows, width, max_norm=0.5)


class WithShortRows(Stack):
    """Two lookups of rows that the first one shortens."""

    def more(self, config):
        self.embed = ShortRows(config.vocab_size, config.hidden_size)

    def forward(self, input_ids, return_dict=True):
        again = self.embed(input_ids.flip(-1))
        return {"hidden": super().forward(input_ids)["hidden"] + again}


class WithTorchEncoder(Stack):
    """Layers of torch, which without gradients compute in one operator from all weights of the layer."""

    def more(self, config):
        heads, inner = config.num_attention_heads, config.intermediate_size
        made = (
            nn.TransformerEncoderLayer(config.hidden_size, heads, inner, batch_first=True)
            for _ in range(config.num_hidden_layers)
        )
        self.layers = nn.ModuleList(made)


class Routed(nn.Module):
    """Experts, each of which computes the tokens whose places `nonzero()` finds; one without tokens is not called."""

    def __init__(self, config):
        super().__init__()
        self.router = nn.Linear(config.hidden_size, EXPERTS)
        self.up = nn.ModuleList(nn.Linear(config.hidden_size, config.intermediate_size) for _ in range(EXPERTS))
        self.down = nn.ModuleList(nn.Linear(config.intermediate_size, config.hidden_size) for _ in range(EXPERTS))

    def forward(self, x):
        tokens = x.flatten(0, -2)
        best, chosen = self.router(tokens).softmax(-1).max(-1)
        result = torch.zeros_like(tokens)
        for number in range(EXPERTS):
            places = (chosen == number).nonzero()[:, 0]
            if places.numel() > 0:
                found = self.expert(number, tokens[places]) * best[places, None]
                result = result.index_add(0, places, found)
        return x + result.view_as(x)

    def expert(self, number, tokens):
        return self.down[number](F.gelu(self.up[number](tokens)))


class RoutedToStacks(Routed):
    """The weights of all experts in one parameter each."""

    def __init__(self, config):
        super().__init__(config)
        del self.up, self.down
        self.up = nn.Parameter(torch.randn(EXPERTS, config.intermediate_size, config.hidden_size) / 8)
        self.down = nn.Parameter(torch.randn(EXPERTS, config.hidden_size, config.intermediate_size) / 8)

    def expert(self, number, tokens):
        return F.linear(F.gelu(F.linear(tokens, self.up[number])), self.down[number])


class WithRoutes(Stack):
    def more(self, config):
        self.layers = nn.ModuleList(Routed(config) for _ in range(config.num_hidden_layers))


class WithRoutesToStacks(Stack):
    def more(self, config):
        self.layers = nn.ModuleList(RoutedToStacks(config) for _ in range(config.num_hidden_layers))


def model_of(kind):
    torch.manual_seed(1)
    sizes = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 96}
    return kind(DeceptiveConfig(**sizes)).eval()
