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
    found = own(scaler, _local(optimizer) if groups else optimizer, *args, **kwargs)
    for group in groups:
        for overflow in found.values():
            dist.all_reduce(overflow, dist.ReduceOp.MAX, group=group)
    return found


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
