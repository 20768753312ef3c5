"""Refuse torch's wrappers over processes that hold different shares of a model, before the first step.

They would copy one process's share to all processes, average gradients of different weights, or join unrelated shares.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from modular_converter.parallel.engine.arguments import BLANK_WEIGHTS
from modular_converter.parallel.engine.group.gradients import groups_of
from modular_converter.parallel.engine.group.share_tensors import holds_other_shares
from modular_converter.parallel.engine.group.spread import each_once
from modular_converter.parallel.errors import ApplyError


_ZERO = "torch.distributed.optim.zero_redundancy_optimizer"  # takes seconds to import
_DATA = "give it the dimension for data, {given}, or take layout='{layout}' and no wrapper"
_REPLICAS = inspect.signature(torch.nn.parallel.DistributedDataParallel.__init__)


def refuse_wrapped(model: torch.nn.Module) -> None:
    """Raise ``ApplyError`` for a model that is sharded already, wrapped, or without data."""
    kinds = (torch.nn.parallel.DistributedDataParallel, torch.nn.DataParallel)
    if isinstance(model, kinds):
        raise ApplyError(f"the model is in {type(model).__name__}: give parallelize its .module, and no wrapper")
    for path, module in model.named_modules():
        where = path or "the model"
        if "_applied" in module.__dict__ or "_held" in module.__dict__:
            raise ApplyError(f"{where} is sharded already: call parallelize once, for the whole model")
        if isinstance(module, (*kinds, FSDPModule)) or any(
            isinstance(p, DTensor) for p in module._parameters.values()
        ):
            raise ApplyError(f"{where} is spread over processes already: call parallelize before any wrapper")
    bare = next((name for name, one in model.named_parameters() if one.is_meta), None)
    if bare is not None and BLANK_WEIGHTS not in model.__dict__:
        raise ApplyError(f"{bare} has no data (meta device): load the weights first, or give the path of the folder")


def checked_replicas(users: Any, own: Any, wrapper: Any, *args: Any, **kwargs: Any) -> None:
    """The constructor of ``DistributedDataParallel``, which first checks the module and the processes."""
    given = _REPLICAS.bind(wrapper, *args, **kwargs).arguments
    mesh = given.get("device_mesh")
    _check_replicas(given["module"], given.get("process_group") if mesh is None else mesh.get_group())
    own(wrapper, *args, **kwargs)


def _check_replicas(module: torch.nn.Module, group: dist.ProcessGroup | None) -> None:
    for one in module.modules():
        grid = one.__dict__.get("_grid")
        if grid is not None and (grid.mesh is not None or grid.data is not None):
            wanted = f"ddp2.{grid.layout}" if grid.data is None else str(grid.layout)
            raise ApplyError(
                f"DistributedDataParallel takes no DTensors: give parallelize layout={wanted!r} and no wrapper"
            )
        held = one.__dict__.get("_held", {}).values()
        if any(weight.dtensor for weight in held):
            raise ApplyError(
                "DistributedDataParallel takes no DTensors: give parallelize a layout such as 'ddp2.tp2' and no wrapper"
            )
        if _holds_others([weight.group.group for weight in held], group):
            said = _DATA.format(given="process_group=mesh['data'].get_group()", layout="ddp2.tp2")
            raise ApplyError(f"DistributedDataParallel over processes that hold other shares of the model: {said}")


def check_wrapped_optimizer(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimizer is torch's ``ZeroRedundancyOptimizer``; raise ``ApplyError`` if it does not fit the shares."""
    module = sys.modules.get(_ZERO)
    if module is None or not isinstance(optimizer, module.ZeroRedundancyOptimizer):
        return False
    _check_zero(optimizer)
    return True


def _check_zero(optimizer: Any) -> None:
    if any(isinstance(one, DTensor) for group in optimizer.param_groups for one in group["params"]):
        raise ApplyError(
            "ZeroRedundancyOptimizer takes no DTensors: give parallelize a layout with fsdp, which shares out the "
            "optimizer's state too, and take AdamW itself"
        )
    if _holds_others(groups_of(optimizer), optimizer.process_group):
        said = _DATA.format(given="process_group=mesh['data'].get_group()", layout="fsdp2.tp2")
        raise ApplyError(f"ZeroRedundancyOptimizer over processes that hold other shares of the model: {said}")


def check_shards(model: Any) -> None:
    """Raise ``ApplyError`` if the caller has called ``fully_shard`` over processes that hold other shares."""
    grid = model.__dict__.get("_grid")
    if grid is None or grid.group.size == 1:
        return
    for one in each_once(model):
        data = one.data()
        if data is not None and _holds_others([grid.group.group], data.group):
            said = _DATA.format(given="mesh=mesh['data']", layout="fsdp2.tp2")
            raise ApplyError(f"{one.name}: fully_shard over processes that hold other shares of the model: {said}")


def _holds_others(shared: Iterable[dist.ProcessGroup | None], group: dist.ProcessGroup | None) -> bool:
    return any(holds_other_shares(dist.get_process_group_ranks(one), group) for one in shared)
