"""Activations that each rank holds for its part of the sequence, between regions that need the whole of it.

A whole tensor has its complete gradient on every rank, a part the gradient of its own entries.
"""

from __future__ import annotations

from typing import Any

import torch

from modular_converter.parallel.shard.collectives import Group, GroupRegion, ProcessGroup


# The dimension of the sequence: activations are [batch, sequence, features].
SEQUENCE = 1


class _Part(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return _own(tensor, group)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _joined(gradients[0], ctx.group), None


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return _joined(part, group)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _own(gradients[0], ctx.group), None


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, whole: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return whole.view_as(whole)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _sum(gradients[0], ctx.group), None, None


class _PartOfSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return _sum(tensor, group)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _joined(gradients[0], ctx.group), None


def part_of_sequence(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """This rank's part of a whole tensor, whose length divides by the number of ranks."""
    return _Part.apply(tensor, group)  # type: ignore[no-any-return,no-untyped-call]


def whole_sequence(part: torch.Tensor, group: Group) -> torch.Tensor:
    """The whole tensor from the parts of all ranks.

    Where it enters a sharded region, the gradients of all ranks are summed and given out in one collective.
    """
    whole: Any = _Whole.apply(part, group)  # type: ignore[no-untyped-call]
    data = whole.detach()
    whole.entering = lambda: _Enter.apply(part, data, group)  # type: ignore[no-untyped-call]
    return whole  # type: ignore[no-any-return]


class ScatteringRegion(GroupRegion):
    """A region whose partial tensors are summed and given out along the sequence in one collective."""

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        return _PartOfSum.apply(value, self.group)  # type: ignore[no-any-return,no-untyped-call]


def _own(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    length = tensor.shape[SEQUENCE] // group.size
    return tensor.narrow(SEQUENCE, group.rank * length, length).contiguous()


def _joined(part: torch.Tensor, group: Group) -> torch.Tensor:
    return torch.cat(group.all_gather(part), SEQUENCE)


def _sum(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    if isinstance(group, ProcessGroup):
        return group.sum_of_parts([part.contiguous() for part in tensor.detach().chunk(group.size, SEQUENCE)])
    return _own(group.all_reduce(tensor), group)  # ranks that are threads
