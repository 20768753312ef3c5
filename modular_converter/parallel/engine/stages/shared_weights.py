"""Weights that several processes of a pipeline have, such as an embedding that is also the head: sums of their gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from modular_converter.parallel.engine.group.same_calls import everywhere
from modular_converter.parallel.shard.collectives import ProcessGroup


@dataclass(frozen=True)
class SharedWeight:
    """A parameter that several processes of a group have.

    Attributes:
        ranks: global ranks of the holders, in order; the gradient's norm counts on the first.
    """

    name: str
    parameter: torch.nn.Parameter
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class SharedWeights:
    """The weights that processes of a group share.

    Attributes:
        own: the shared weights of this process.
        names: of the shared weights of all processes.
        group: all processes with stages. A group of only the holders would get its name from the number of groups that a
            process has made, which may differ between the holders; they would wait for ever.
        device: of this process.
    """

    own: Sequence[SharedWeight]
    names: tuple[str, ...]
    group: dist.ProcessGroup
    device: torch.device

    def used(self) -> set[str]:
        """The names of the weights that have a gradient on any process."""
        with_gradient = {one.name for one in self.own if one.parameter.grad is not None}
        found = torch.tensor([float(name in with_gradient) for name in self.names], device=self.device)
        if self.names:
            dist.all_reduce(found, group=self.group)
        return {name for name, number in zip(self.names, found.tolist()) if number}


def shared_weights(
    own: Mapping[str, torch.nn.Parameter], group: dist.ProcessGroup, device: torch.device
) -> SharedWeights:
    """The shared weights of a group; all its processes must call it.

    Args:
        own: first name in the whole model -> parameter of this process's stages.
        device: of this process.
    """
    holders: dict[str, tuple[int, ...]] = {}
    for number, names in enumerate(everywhere(sorted(own), ProcessGroup(group))):
        for name in names:
            holders[name] = (*holders.get(name, ()), dist.get_global_rank(group, number))
    shared = tuple(name for name in sorted(holders) if len(holders[name]) > 1)
    mine = [SharedWeight(name, own[name], holders[name]) for name in shared if name in own]
    return SharedWeights(mine, shared, group, device)


@contextmanager
def summed_gradients(shared: SharedWeights) -> Iterator[None]:
    """Sum the gradients of a step over the holders of each weight, and add them to those of earlier steps.

    After a failed step, the gradients of earlier steps are unchanged.
    """
    earlier = [one.parameter.grad for one in shared.own]
    for one in shared.own:
        one.parameter.grad = None
    try:
        yield
        used = shared.used()
    except BaseException:
        for one, before in zip(shared.own, earlier):
            one.parameter.grad = before
        raise
    for one, before in zip(shared.own, earlier):
        if one.name not in used:
            one.parameter.grad = before
            continue
        gradient = torch.zeros_like(one.parameter) if one.parameter.grad is None else one.parameter.grad
        # In a layout, the holders have the same part of the weight.
        _sum(gradient.to_local() if isinstance(gradient, DTensor) else gradient, one, shared.group)
        one.parameter.grad = gradient if before is None else before.add_(gradient)


def _sum(gradient: torch.Tensor, one: SharedWeight, group: dist.ProcessGroup) -> None:
    """Sum a gradient over the holders of the weight, in place and in the same order on each."""
    own = gradient.contiguous()
    parts = {rank: own if rank == dist.get_rank() else torch.empty_like(own) for rank in one.ranks}
    calls = [
        dist.P2POp(call, tensor, rank, group)
        for rank, part in parts.items()
        if part is not own
        for call, tensor in ((dist.isend, own), (dist.irecv, part))
    ]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    total = parts[one.ranks[0]].clone()
    for rank in one.ranks[1:]:
        total += parts[rank]
    gradient.copy_(total)
