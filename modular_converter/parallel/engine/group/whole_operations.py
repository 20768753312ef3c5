"""Operations of DTensors that torch computes of this process's part alone, or not at all: here on the whole tensors.

Of a number (``weight.norm().item()``) torch gives that of the part. It draws noise on CPUs from each process's own generator
for its own part: replicas would get different noise, and parts of one weight the same. An operation for which it has no
placement is an error, as are entries set by a mask. All these are computed on whole tensors, one operation at a time, and
each process takes its part; so all processes must make them. Noise is drawn as the first process of the mesh would draw it
for the whole tensor.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate

from modular_converter.parallel.engine.base.dropout import draw_as_first
from modular_converter.parallel.engine.group.same_calls import meet_of
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.torch_private import TracingContext, dtensor_dispatcher, pytree


_NUMBER = torch.ops.aten._local_scalar_dense.default
_DRAWN = (
    "bernoulli bernoulli_ binomial cauchy_ exponential_ geometric_ log_normal_ multinomial native_dropout normal normal_ poisson "
    "rand_like randint_like randn_like random_ uniform_"
)
# Where torch chooses placements; it hands an error of its own on.
_PLACES = "_propagate_op_sharding_dispatch_slow_path"


def _forms(names: str) -> Iterator[Any]:
    """The forms of operations whose first argument is a tensor."""
    for name in names.split():
        packet = getattr(torch.ops.aten, name)
        forms = [getattr(packet, one) for one in packet.overloads()]
        yield from (
            one for one in forms if str(one._schema.arguments[0].type) == "Tensor" and "out" not in one._overloadname
        )


class WholeOperations:
    """A patch (see ``Patches``) of torch's dispatcher of DTensors."""

    def __init__(self) -> None:
        self.handlers: dict[Any, Callable[..., Any]] = {_NUMBER: on_whole}
        self.handlers |= dict.fromkeys(_forms(_DRAWN), _noise)
        self.handlers |= dict.fromkeys(_forms("index_put_ index_put"), on_whole)

    def enter(self, users: Any) -> None:
        for operation, handler in self.handlers.items():
            dtensor_dispatcher._custom_op_handlers.setdefault(operation, handler)
        if _PLACES not in vars(dtensor_dispatcher):
            setattr(dtensor_dispatcher, _PLACES, functools.partial(_placed, getattr(dtensor_dispatcher, _PLACES)))

    def leave(self) -> None:
        for operation, handler in self.handlers.items():
            if dtensor_dispatcher._custom_op_handlers.get(operation) is handler:
                del dtensor_dispatcher._custom_op_handlers[operation]
        vars(dtensor_dispatcher).pop(_PLACES, None)


def on_whole(operation: Any, args: Any, kwargs: Any) -> Any:
    """What an operation gives, computed by all processes on whole tensors; results are cut like an argument of their shape."""
    given = [one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, DTensor)]
    mesh = given[0].device_mesh
    if any(one.device_mesh != mesh for one in given):
        raise ApplyError(
            f"{operation} of DTensors over different processes, {mesh} and others: take full_tensor() of each"
        )
    if any(_is_spread(one) for one in given):
        meet_of(f"code that computes {operation} of DTensors", mesh.mesh.flatten().tolist())
    whole = {id(one): _whole(one) for one in given}
    args_of_all, kwargs_of_all = pytree.tree_map(lambda one: whole.get(id(one), one), (args, kwargs))
    found = operation(*args_of_all, **kwargs_of_all)
    written = {id(whole[id(one)]): one for one in given}

    def cut(result: Any) -> Any:
        if not isinstance(result, torch.Tensor):
            return result
        own = written.get(id(result))
        if own is not None:
            return own
        like = next((one for one in given if one.shape == result.shape), None)
        return _cut(result, mesh, [Replicate()] * mesh.ndim if like is None else like.placements)

    for number, one in enumerate(operation._schema.arguments):
        if one.alias_info is not None and one.alias_info.is_write:
            value = args[number] if number < len(args) else kwargs.get(one.name)
            for changed in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(changed, DTensor):
                    _write(changed, whole[id(changed)])
    return pytree.tree_map(cut, found)


def _is_spread(tensor: Any) -> bool:
    return any(not isinstance(one, Replicate) for one in tensor.placements)


def _whole(tensor: Any) -> torch.Tensor:
    """The whole tensor, as one that may be written."""
    found: torch.Tensor = tensor.detach().full_tensor().clone()
    return found


def _cut(whole: torch.Tensor, mesh: DeviceMesh, placements: Any) -> DTensor:
    placements = [Replicate() if isinstance(one, Partial) else one for one in placements]
    return DTensor.from_local(whole, mesh, [Replicate()] * mesh.ndim, run_check=False).redistribute(mesh, placements)


def _write(tensor: DTensor, whole: torch.Tensor) -> None:
    """Let a DTensor have the entries of a whole one. Sums that are due on its processes have been made."""
    found = _cut(whole, tensor.device_mesh, tensor.placements)
    if found.placements == tensor.placements:
        tensor._local_tensor.copy_(found._local_tensor)
    else:
        tensor._local_tensor, tensor._spec = found._local_tensor, found._spec


def _noise(operation: Any, args: Any, kwargs: Any) -> Any:
    first = next(one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, DTensor))
    mesh, place, generator = first.device_mesh, first._local_tensor.device, kwargs.get("generator")
    with contextlib.ExitStack() as stack:
        for dim in range(mesh.ndim):
            stack.callback(draw_as_first(mesh.get_group(dim), place, generator))
        return on_whole(operation, args, kwargs)


def _placed(own: Callable[..., Any], operation: Any, args: Any, kwargs: Any, info: Any, try_cache: bool) -> Any:
    """torch's choice of placements; where it has none, the result on whole tensors."""
    try:
        return own(operation, args, kwargs, info, try_cache)
    except (RuntimeError, NotImplementedError):
        if TracingContext.try_get() is not None:
            raise
        return on_whole(operation, args, kwargs)
