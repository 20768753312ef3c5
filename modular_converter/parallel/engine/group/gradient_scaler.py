"""Overflows of scaled gradients: one in a share of one process makes all processes leave the step out."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist


_OWN = "_unscale_grads_"


def share_overflows() -> None:
    """Make every ``torch.amp.GradScaler`` know the overflows of all processes that share an optimizer's weights.

    A scaler looks at this process's gradients alone; processes that do not agree about a step would part.
    """
    scaler: Any = torch.amp.GradScaler
    own = getattr(scaler, _OWN)
    if hasattr(own, "__wrapped__"):
        return

    @functools.wraps(own)
    def shared(self: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        found = own(self, optimizer, *args, **kwargs)
        for group in _groups(optimizer):
            for overflow in found.values():
                dist.all_reduce(overflow, dist.ReduceOp.MAX, group=group)
        return found

    setattr(scaler, _OWN, shared)


def _groups(optimizer: torch.optim.Optimizer) -> list[Any]:
    """The process groups over which an optimizer's parameters are shared out, each once."""
    owners = [getattr(p, "group", None) for group in optimizer.param_groups for p in group["params"]]
    known = {id(owner.group): owner.group for owner in owners if owner is not None}
    return list(known.values())
