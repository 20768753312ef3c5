"""Activations that are divided along the sequence, between regions that need the whole sequence.

A whole tensor has its complete gradient on every rank, a part has the gradient of its own entries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from modular_converter.parallel.shard.collectives import Group, GroupRegion, ProcessGroup, exchanged


# The dimension of the sequence: activations are [batch, sequence, features].
SEQUENCE = 1


def part_of_sequence(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """This rank's part of a whole tensor, whose length divides by the number of ranks."""
    return exchanged(tensor, group, _own, _joined)


def whole_sequence(part: torch.Tensor, group: Group) -> torch.Tensor:
    """The whole tensor from the parts of all ranks.

    If it enters a sharded region, the gradients of all ranks go through one reduce-scatter.
    """
    whole: Any = exchanged(part, group, _joined, _own)
    data = whole.detach()
    whole.entering = lambda: exchanged(part, group, _joined, _sum, known=data)
    return whole  # type: ignore[no-any-return]


class ScatteringRegion(GroupRegion):
    """A region whose partial sums go through a reduce-scatter along the sequence."""

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        return exchanged(value, self.group, _sum, _joined)

    def sum_of_product(
        self, function: Callable[..., torch.Tensor], input: torch.Tensor, weight: Any, bias: Any
    ) -> torch.Tensor:
        """Each rank adds the bias to its part of the sequence, so the gradients of the bias are summed."""
        return super().sum_of_product(function, input, weight, self.enter(bias))


def _own(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    length = tensor.shape[SEQUENCE] // group.size
    return tensor.narrow(SEQUENCE, group.rank * length, length).contiguous()


def _joined(part: torch.Tensor, group: Group) -> torch.Tensor:
    return torch.cat(group.all_gather(part), SEQUENCE)


def _sum(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    if isinstance(group, ProcessGroup):
        return group.sum_of_parts([part.contiguous() for part in tensor.detach().chunk(group.size, SEQUENCE)])
    return _own(group.all_reduce(tensor), group)  # ranks that are threads
