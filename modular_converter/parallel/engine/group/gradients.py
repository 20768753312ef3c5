"""Gradients of a sharded model as if it were whole: their norm, overflows, and refused ways to ask for or average them.

A forward uses other tensors than ``model.parameters()`` has then, and only their backward brings each weight its
gradient, averaged over the data ranks. ``torch.autograd.grad`` of such a weight finds nothing: with ``allow_unused``
without a word. torch's own wrappers over processes that hold different shares are refused before the first step: they
would copy one process's share to all, average gradients of different weights, or join unrelated shares.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import CheckpointError

from modular_converter.parallel.engine.arguments import BLANK_WEIGHTS
from modular_converter.parallel.engine.group.kept_gathered import WATCHED, end_broken
from modular_converter.parallel.engine.group.same_calls import together
from modular_converter.parallel.engine.group.share_tensors import for_compiled, holds_other_shares
from modular_converter.parallel.engine.group.spread import Spread, each_once, models_of
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.shard.collectives import ProcessGroup


# Whether a weight is cut over the tensor dimension, and over data ranks.
_Cut = tuple[bool, bool]
_CUTS: tuple[_Cut, ...] = ((False, False), (False, True), (True, False), (True, True))


def norm_of(
    weights: Iterable[Spread],
    kind: float,
    group: ProcessGroup | None,
    place: torch.device,
    stages: ProcessGroup | None = None,
) -> torch.Tensor:
    """The norm, on ``place``: each share and each whole weight counts once; all processes must call it.

    Args:
        group: of the tensor dimension; None without one.
        stages: the processes that have the other stages; None without stages.

    Raises ``ApplyError`` for a kind that is not above 0.
    """
    if not kind > 0:
        raise ApplyError(
            f"a norm of kind {kind} cannot be put together from shares; use one above 0, such as 2.0 or inf"
        )
    # Processes without gradients, as of a stage whose weights are frozen, do not know the type of the others'.
    nothing = torch.zeros((), device=place, dtype=torch.float64)
    norms: dict[_Cut, list[torch.Tensor]] = {cut: [nothing] for cut in _CUTS}
    data, exact = cast("ProcessGroup | None", None), torch.float32
    for one in weights:
        exact = torch.promote_types(exact, one.stored.dtype)
        spread_over = one.data()
        data = spread_over or data
        if one.stored.grad is not None and is_first_replica(one):
            gradient = one.local(one.stored.grad)
            if not gradient.numel():  # a share without rows, of which torch computes no norm of kind inf
                continue
            found = torch.linalg.vector_norm(gradient, kind, dtype=torch.promote_types(gradient.dtype, torch.float32))
            norms[one.cut, spread_over is not None].append(found.to(place, torch.float64))
    if kind == float("inf"):
        largest = torch.stack([norm for cut in _CUTS for norm in norms[cut]]).max().view(1)
        for one_group in (group, data, stages):
            largest = torch.stack(one_group.all_gather(largest)).amax(0) if one_group is not None else largest
        return largest[0].to(exact)
    sums = torch.stack([torch.stack(norms[cut]).pow(kind).sum() for cut in _CUTS])
    if data is not None:
        sums[[1, 3]] = data.all_reduce(sums[[1, 3]])
    if group is not None and group.size > 1:
        sums[2:] = group.all_reduce(sums[2:])
    total = sums.sum()
    if stages is not None:
        total = stages.all_reduce(total)
    return total.pow(1.0 / kind).to(exact)


def scale_gradients(weights: Iterable[Spread], norm: torch.Tensor, max_norm: float) -> None:
    """Scale all gradients from ``norm`` to a norm of at most ``max_norm``."""
    scale = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
    for one in weights:
        if one.stored.grad is not None:
            gradient = one.local(one.stored.grad)
            gradient.mul_(scale.to(gradient.device, gradient.dtype))


def is_first_replica(one: Spread) -> bool:
    """Whether no process of lower rank holds a copy of this process's share."""
    if one.held is None or one.held.piece is None or one.held.piece.units is None or not one.held.copies:
        return True
    return one.held.piece.units.is_first_replica(one.held.group.rank, one.held.group.size)


WHOLE_BEFORE = "_whole_before"
"""In the ``__dict__`` of weights of a model that processes then have shared out."""


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


def checked_grad(users: Any, own: Any, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """``torch.autograd.grad``, which first looks at the tensors whose gradients are wanted."""
    _refuse_spread(users, inputs, "torch.autograd.grad")
    with _ended_if_broken(users), _noted_writes(users):
        return own(outputs, inputs, *args, **kwargs)


def checked_backward(users: Any, own: Any, *args: Any, **kwargs: Any) -> Any:
    """``torch.autograd.backward``, which also is that of a tensor."""
    _refuse_spread(users, kwargs.get("inputs"), "backward(inputs=)")
    with for_compiled(list(users)), _ended_if_broken(users), _noted_writes(users):
        return own(*args, **kwargs)


@contextlib.contextmanager
def _noted_writes(users: Any) -> Iterator[None]:
    """A backward, which finds writes to the weights that its forward has saved, as on one device."""
    watched = [user.__dict__[WATCHED] for user in list(users) if WATCHED in user.__dict__]
    noted = [one.parts.note_writes() for one in watched]
    try:
        yield
    except CheckpointError as error:
        if not any(user.__dict__.get("_grid") is not None and user._grid.data is not None for user in list(users)):
            raise
        raise ApplyError(
            "a forward that was computed again in its backward has kept other tensors: with data ranks, torch.utils.checkpoint around a "
            "call of the model takes use_reentrant=True; model.gradient_checkpointing_enable() recomputes layers"
        ) from error
    except RuntimeError as error:
        if not any(noted) or "modified" not in str(error):
            raise
        raise ApplyError(
            "weights were written between a forward and its backward, which needs them as they were: write to them after the "
            "backward, or compute the forward again"
        ) from error


@contextlib.contextmanager
def _ended_if_broken(users: Any) -> Iterator[None]:
    """A backward; after an exception, models are in none."""
    try:
        with together():
            yield
    except BaseException:
        for model in (one for user in list(users) for one in models_of(user)):
            end_broken(model, in_backward=True)
        raise


def _refuse_spread(users: Iterable[Any], inputs: Any, name: str) -> None:
    wanted = [inputs] if isinstance(inputs, torch.Tensor) else inputs if isinstance(inputs, (list, tuple)) else []
    weights = {id(one) for one in wanted if isinstance(one, torch.nn.Parameter)}
    if not weights:
        return
    for user in users:
        grid = user.__dict__.get("_grid")
        if grid is None or grid.data is None:
            continue
        found = next((path for path, one in user.named_parameters() if id(one) in weights), None)
        if found is not None:
            raise ApplyError(
                f"{name} of {found}: data ranks share out this weight's gradient, which loss.backward() alone computes; call "
                "it, and read the weight's .grad"
            )


_ZERO = "torch.distributed.optim.zero_redundancy_optimizer"  # takes seconds to import
_DATA = "give it the dimension for data, {given}, or take layout='{layout}' and no wrapper"
_REPLICAS = inspect.signature(torch.nn.parallel.DistributedDataParallel.__init__)


def refuse_wrapped(model: torch.nn.Module) -> None:
    """Raise ``ApplyError`` for a model that is sharded already, wrapped, without data, or with hooks on weights."""
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
    for name, weight in model.named_parameters():  # its share would not have the hook
        if weight._backward_hooks or getattr(weight, "_post_accumulate_grad_hooks", None):
            raise ApplyError(
                f"{name} has a hook on its gradient, and parallelize makes new parameters: put it on them afterwards"
            )


def refuse_other_type(change: Callable[[torch.Tensor], torch.Tensor], weight: torch.Tensor) -> None:
    """Raise ``ApplyError`` if a conversion, as of ``to``, gives a weight another type or device."""
    before = torch.empty(0, dtype=weight.dtype, device=weight.device)
    after = change(before)
    if after.dtype != before.dtype or after.device != before.device:
        raise ApplyError(
            "with stages or data ranks, weights keep their type and device: give parallelize dtype= or device=, or "
            "Training(compute_type=…) for products in another type"
        )


def checked_replicas(users: Any, own: Any, wrapper: Any, *args: Any, **kwargs: Any) -> None:
    """The constructor of ``DistributedDataParallel``, which first checks the module and the processes."""
    given = _REPLICAS.bind(wrapper, *args, **kwargs).arguments
    mesh = given.get("device_mesh")
    _check_replicas(given["module"], given.get("process_group") if mesh is None else mesh.get_group())
    own(wrapper, *args, **kwargs)


def _check_replicas(module: torch.nn.Module, group: dist.ProcessGroup | None) -> None:
    if not isinstance(module, torch.nn.Module):
        raise ApplyError(
            f"DistributedDataParallel takes no {type(module).__name__}: give parallelize a layout such as 'pp2.ddp2', which "
            "averages the gradients of the stages' copies, and no wrapper"
        )
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
    if any(isinstance(one, DTensor) for group in optimizer.param_groups for one in group["params"]):
        raise ApplyError(
            "ZeroRedundancyOptimizer takes no DTensors: give parallelize a layout with fsdp, which shares out the "
            "optimizer's state too, and take AdamW itself"
        )
    if _holds_others(groups_of(optimizer), optimizer.process_group):
        said = _DATA.format(given="process_group=mesh['data'].get_group()", layout="fsdp2.tp2")
        raise ApplyError(f"ZeroRedundancyOptimizer over processes that hold other shares of the model: {said}")
    return True


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
