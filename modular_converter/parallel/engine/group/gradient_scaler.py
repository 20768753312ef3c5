"""Gradient scaling: an overflow in one process's share makes all processes skip the step."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor


def unscale_together(users: Any, own: Any, scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
    """A scaler's unscaling that combines the overflows of all processes that share an optimizer's weights.

    torch's scaler looks only at this process's gradients; processes that disagree about a step would diverge.
    """
    groups = list(groups_of(optimizer))
    if not groups:
        return own(scaler, optimizer, *args, **kwargs)
    mine = _local(optimizer)
    found = own(scaler, mine, *args, **kwargs)
    place = mine.param_groups[0]["params"][0].device
    # Also of a process without gradients, whose share of each weight is empty: the others wait for it.
    facts = torch.tensor([0.0, float(bool(found))], device=place)
    for overflow in found.values():
        facts[0] = torch.maximum(facts[0], overflow.to(place))
    for group in groups:
        dist.all_reduce(facts, dist.ReduceOp.MAX, group=group)
    for overflow in found.values():
        overflow.copy_(facts[0])
    return found or ({place: facts[0]} if facts[1] else found)


def _local(optimizer: torch.optim.Optimizer) -> Any:
    """An optimizer with this process's part of each gradient, for a scaler: its lists must not mix in DTensors."""

    def local(parameter: Any) -> Any:
        if not isinstance(parameter, DTensor) or parameter.grad is None:
            return parameter
        own: Any = parameter.detach()
        own = own.to_local()
        gradient: Any = parameter.grad
        own.grad = gradient.to_local()
        return own

    groups = [{"params": [local(p) for p in group["params"]]} for group in optimizer.param_groups]
    return SimpleNamespace(param_groups=groups)


def groups_of(optimizer: torch.optim.Optimizer) -> Iterator[Any]:
    """The process groups over which an optimizer's parameters are sharded, each once."""
    known: set[Any] = set()
    for parameter in (p for group in optimizer.param_groups for p in group["params"]):
        owner = getattr(parameter, "group", None)
        own = [owner.group] if owner is not None else []
        for group in parameter.device_mesh.get_all_groups() if isinstance(parameter, DTensor) else own:
            if group not in known:
                known.add(group)
                yield group
