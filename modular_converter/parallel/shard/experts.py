"""One rank's part of a module of experts: its own experts, the routes to them, and the sum over the ranks.

All ranks see the same tokens. Routes to another rank's experts get weight 0 and any local index, so that no code of the
module has to know of them; each token's outputs then add up over the ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.shard.collectives import Group, enter, summed


@dataclass(frozen=True)
class Routing:
    """Where among its arguments a module of experts takes the chosen experts and their weights."""

    index: int | str
    weights: int | str


def routing_of(arguments: dict[int | str, Any]) -> Routing | None:
    """The one integer tensor among the arguments, and the one floating tensor of its shape; None if it is not so."""
    tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    indices = [name for name, value in tensors.items() if value.dtype in (torch.int32, torch.int64)]
    if len(indices) != 1:
        return None
    shape = tensors[indices[0]].shape
    weights = [name for name, value in tensors.items() if value.is_floating_point() and value.shape == shape]
    return Routing(indices[0], weights[0]) if len(weights) == 1 else None


def dispatch(module: torch.nn.Module, path: str, local: int, group: Group) -> list[Any]:
    """Hook a module of experts whose stacked weights are sharded by expert.

    Args:
        path: its name, for messages.
        local: how many experts this rank holds; rank ``r`` holds ``[r * local, (r + 1) * local)``.

    Returns:
        The handles of the hooks. A call raises ``ApplyError`` when the module takes no index with weights.
    """

    def entering(module: Any, args: Any, kwargs: Any) -> Any:
        arguments: dict[int | str, Any] = {**dict(enumerate(args)), **kwargs}
        routing = routing_of(arguments)
        if routing is None:
            raise ApplyError(f"{path}: takes no index of experts with weights of the same shape, so no route is local")
        index = arguments[routing.index]
        away = index // local != group.rank
        for name, value in arguments.items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                arguments[name] = enter(value, group)
        arguments[routing.index] = torch.where(away, torch.zeros_like(index), index % local)
        arguments[routing.weights] = arguments[routing.weights].masked_fill(away, 0.0)
        return tuple(arguments.pop(place) for place in range(len(args))), arguments

    def leaving(module: Any, args: Any, result: Any) -> Any:
        if isinstance(result, torch.Tensor):
            return summed(result, group)
        return type(result)((summed(result[0], group), *result[1:]))

    return [
        module.register_forward_pre_hook(entering, with_kwargs=True),
        module.register_forward_hook(leaving),
    ]


def local_experts(module: torch.nn.Module, path: str, sharded: set[str]) -> int:
    """The experts that a rank holds, from the shards' first dimensions.

    Raises:
        ApplyError: no parameter of the module is sharded by expert, or they hold different numbers.
    """
    own = dict(module.named_parameters(recurse=False))
    lengths = {leaf: parameter.shape[0] for leaf, parameter in own.items() if f"{path}.{leaf}" in sharded}
    if not lengths:
        raise ApplyError(f"{path}: style ep_dispatch_experts, but none of its parameters is sharded by expert")
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{leaf} {length}" for leaf, length in sorted(lengths.items()))
        raise ApplyError(f"{path}: its parameters hold different numbers of experts a rank: {said}")
    return next(iter(lengths.values()))
