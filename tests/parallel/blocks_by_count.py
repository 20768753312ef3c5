"""Models whose layers cut a width into blocks of equal lengths, or of equal numbers of heads."""

from __future__ import annotations

import torch
from huggingface_hub.dataclasses import strict

from tests.parallel.deceptive import DeceptiveConfig
from tests.parallel.numbers_of_shapes import _Block, _Stack


@strict
class BlocksConfig(DeceptiveConfig):
    model_type = "blocks"
    n_parts: int = 2


class _InBlocks(_Block):
    def __init__(self, config):
        super().__init__(config)
        self.n_parts = config.n_parts


class TurnedBlock(_InBlocks):
    """So many blocks as the configuration says, in another order."""

    def changed(self, hidden):
        return torch.cat(list(hidden.chunk(self.n_parts, -1))[::-1], -1)


class Turned(_Stack):
    config_class = BlocksConfig
    block = TurnedBlock


class HalvedBlock(_Block):
    """The first half of the heads counts twice; a head has 8 entries."""

    def changed(self, hidden):
        heads = hidden.unflatten(-1, (-1, 8)).softmax(-1)
        half = heads.shape[-2] // 2
        return torch.cat([heads[..., :half, :] * 2, heads[..., half:, :]], -2).flatten(-2)


class Halved(_Stack):
    block = HalvedBlock


class AveragedBlock(_Block):
    """A running mean is written in training."""

    def __init__(self, config):
        super().__init__(config)
        self.register_buffer("mean", torch.zeros(config.hidden_size))

    def forward(self, x):
        if self.training:
            self.mean.mul_(0.9).add_(x.detach().mean((0, 1)), alpha=0.1)
        return super().forward(x - self.mean)

    def changed(self, hidden):
        return hidden


class Averaged(_Stack):
    block = AveragedBlock


class DifferedBlock(_Block):
    """Each entry of a wide layer takes its neighbour."""

    def changed(self, hidden):
        return torch.diff(hidden, dim=-1, prepend=hidden[..., :1])


class Differed(_Stack):
    block = DifferedBlock
