"""Weights that stages of several processes have, such as tied embeddings: their gradients are summed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from modular_converter.parallel.pipeline.part_of_model import without_data


@dataclass(frozen=True)
class SharedWeight:
    """A parameter that several processes of a group have.

    Attributes:
        ranks: of the whole world, in order; the norm of the gradient counts on the first.
    """

    name: str
    parameter: torch.nn.Parameter
    group: dist.ProcessGroup
    ranks: tuple[int, ...]


def shared_weights(own: Mapping[str, torch.nn.Parameter], group: dist.ProcessGroup) -> list[SharedWeight]:
    """This process's shared weights; all processes of the group must call it.

    Args:
        own: the parameters of this process's stages, by the first name that each has in the whole model.
    """
    held: list[list[str]] = [[] for _ in range(dist.get_world_size(group))]
    dist.all_gather_object(held, sorted(own), group=group)
    holders: dict[str, tuple[int, ...]] = {}
    for number, names in enumerate(held):
        for name in names:
            holders[name] = (*holders.get(name, ()), dist.get_global_rank(group, number))
    several = sorted({ranks for ranks in holders.values() if len(ranks) > 1 and dist.get_rank() in ranks})
    groups = {ranks: dist.new_group(list(ranks), use_local_synchronization=True) for ranks in several}
    return [
        SharedWeight(name, own[name], groups[holders[name]], holders[name])
        for name in sorted(own)
        if len(holders[name]) > 1
    ]


@contextmanager
def summed_gradients(shared: Sequence[SharedWeight]) -> Iterator[None]:
    """Sum the gradients of a step over the processes that have a weight; those of earlier steps are summed already.

    A step that fails leaves those of earlier steps.
    """
    earlier = [one.parameter.grad for one in shared]
    for one in shared:
        one.parameter.grad = None
    try:
        yield
    except BaseException:
        for one, before in zip(shared, earlier):
            one.parameter.grad = before
        raise
    for one, before in zip(shared, earlier):
        if one.parameter.requires_grad:
            gradient = torch.zeros_like(one.parameter) if one.parameter.grad is None else one.parameter.grad
            # Processes of a layout hold the same part of it in each stage.
            dist.all_reduce(gradient.to_local() if isinstance(gradient, DTensor) else gradient, group=one.group)
            one.parameter.grad = gradient if before is None else before.add_(gradient)


def clip_gradients(
    own: Mapping[str, torch.nn.Parameter],
    shared: Sequence[SharedWeight],
    max_norm: float,
    group: dist.ProcessGroup,
    place: torch.device,
) -> torch.Tensor:
    """See ``Pipeline.clip_grad_norm_``."""
    second = {one.name for one in shared if one.ranks[0] != dist.get_rank()}
    gradients = {name: p.grad for name, p in own.items() if p.grad is not None}
    squares = [g.float().pow(2).sum() for name, g in gradients.items() if name not in second]
    total = torch.stack([*squares, torch.zeros((), device=place)]).sum()
    dist.all_reduce(total, group=group)
    norm = total.sqrt()
    for gradient in gradients.values():
        gradient.mul_(torch.clamp(max_norm / (norm + 1e-6), max=1.0).to(gradient.dtype))
    return norm


def free_weights(model: torch.nn.Module, kept: set[int]) -> None:
    """Give up the data of all parameters but some."""
    for module in model.modules():
        parameters: dict[str, Any] = module._parameters
        for name, value in parameters.items():
            if value is not None and id(value) not in kept:
                parameters[name] = without_data(value)
