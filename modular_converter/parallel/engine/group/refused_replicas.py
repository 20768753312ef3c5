"""``DistributedDataParallel`` around a sharded model over processes with other shares: refused before the first step.

It would copy the first process's share to all of them, and average gradients of different weights.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.distributed as dist

from modular_converter.parallel.errors import ApplyError


def refuse_wrong_replicas() -> None:
    """Make every ``DistributedDataParallel`` look at the shares of its module."""
    kind: Any = torch.nn.parallel.DistributedDataParallel
    own = kind.__init__
    if hasattr(own, "__wrapped__"):
        return

    @functools.wraps(own)
    def checked(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        for one in module.modules():
            if "_grid" in one.__dict__:
                _check(one.__dict__["_grid"], kwargs.get("process_group"))
        own(self, module, *args, **kwargs)

    kind.__init__ = checked


def _check(grid: Any, group: dist.ProcessGroup | None) -> None:
    if grid.mesh is not None or grid.data is not None:
        wanted = f"ddp2.{grid.layout}" if grid.data is None else str(grid.layout)
        raise ApplyError(
            f"DistributedDataParallel takes no DTensors: give parallelize layout={wanted!r} and no wrapper"
        )
    shares = set(dist.get_process_group_ranks(grid.group.group))
    if len(shares & set(dist.get_process_group_ranks(group))) > 1:
        raise ApplyError(
            "DistributedDataParallel over processes that hold other shares of the model: give it the dimension for data, "
            "process_group=mesh['data'].get_group(), or take layout='ddp2.tp2' and no wrapper"
        )
