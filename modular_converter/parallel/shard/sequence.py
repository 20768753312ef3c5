"""Activations that are divided along the sequence, between regions that need the whole sequence.

A whole tensor has its complete gradient on every rank, a part has the gradient of its own entries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from modular_converter.parallel.shard.collectives import Group, GroupRegion, ProcessGroup


# The dimension of the sequence: activations are [batch, sequence, features].
SEQUENCE = 1


Exchange = Callable[[torch.Tensor, Group], torch.Tensor]


class _Exchanged(torch.autograd.Function):
    """One exchange forward, and its inverse or its transpose backward."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group, there: Exchange, back: Exchange) -> torch.Tensor:
        ctx.group, ctx.back = group, back
        return there(tensor, group)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return ctx.back(gradients[0], ctx.group), None, None, None


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, whole: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _sum(gradients[0], ctx.group), None, None


def part_of_sequence(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """This rank's part of a whole tensor, whose length divides by the number of ranks."""
    return _Exchanged.apply(tensor, group, _own, _joined)  # type: ignore[no-any-return,no-untyped-call]


def whole_sequence(part: torch.Tensor, group: Group) -> torch.Tensor:
    """The whole tensor from the parts of all ranks.

    If it enters a sharded region, the gradients of all ranks go through one reduce-scatter.
    """
    whole: Any = _Exchanged.apply(part, group, _joined, _own)  # type: ignore[no-untyped-call]
    data = whole.detach()
    whole.entering = lambda: _Enter.apply(part, data, group)  # type: ignore[no-untyped-call]
    return whole  # type: ignore[no-any-return]


class ScatteringRegion(GroupRegion):
    """A region whose partial sums go through a reduce-scatter along the sequence."""

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        return _Exchanged.apply(value, self.group, _sum, _joined)  # type: ignore[no-any-return,no-untyped-call]


def _own(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    length = tensor.shape[SEQUENCE] // group.size
    return tensor.narrow(SEQUENCE, group.rank * length, length).contiguous()


def _joined(part: torch.Tensor, group: Group) -> torch.Tensor:
    return torch.cat(group.all_gather(part), SEQUENCE)


def _sum(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    if isinstance(group, ProcessGroup):
        return group.sum_of_parts([part.contiguous() for part in tensor.detach().chunk(group.size, SEQUENCE)])
    return _own(group.all_reduce(tensor), group)  # ranks that are threads
