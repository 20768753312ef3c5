"""``ep_dispatch_experts``: a module of whole experts; each rank takes the routes to its own experts.

All ranks have the same tokens. Routes to another rank's experts get weight 0 and a local index, so that the module's code
needs no change; the sum over the ranks is then the output of each token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.styles.all_reduce import summed_output
from modular_converter.parallel.styles.grouped_gemm import ROUTED
from modular_converter.parallel.styles.style import SUM_OVER_RANKS, Enters, Level, Site, Style


@dataclass(frozen=True)
class Routing:
    """The arguments, by position or name, in which a module of experts takes the chosen experts and their weights."""

    index: int | str
    weights: int | str


def routing_of(arguments: dict[int | str, Any]) -> Routing | None:
    """The only integer tensor among the arguments, and the only floating tensor of its shape; None if one is not unique."""
    import torch

    tensors = {name: value for name, value in arguments.items() if isinstance(value, torch.Tensor)}
    indices = [name for name, value in tensors.items() if value.dtype in (torch.int32, torch.int64)]
    if len(indices) != 1:
        return None
    shape = tensors[indices[0]].shape
    weights = [name for name, value in tensors.items() if value.is_floating_point() and value.shape == shape]
    return Routing(indices[0], weights[0]) if len(weights) == 1 else None


def local_experts(site: Site) -> tuple[int, int]:
    """The range of a rank's experts (first, last + 1), from the shards' first dimensions.

    Raises ``ApplyError`` if no parameter of the module is sharded by expert, or parameters have different ranges.
    """
    lengths = site.firsts
    if not lengths:
        raise ApplyError(f"{site.path}: style ep_dispatch_experts, but none of its parameters is sharded by expert")
    if len(set(lengths.values())) > 1:
        said = ", ".join(f"{leaf} {last - first}" for leaf, (first, last) in sorted(lengths.items()))
        raise ApplyError(f"{site.path}: its parameters hold different numbers of experts a rank: {said}")
    return next(iter(lengths.values()))


def _before(site: Site, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with routes to this rank's experts, by local index. Raises ``ApplyError`` if they have no routes."""
    arguments: dict[int | str, Any] = dict(enumerate(args))
    arguments.update(kwargs)
    routing, (first, last) = routing_of(arguments), local_experts(site)
    if routing is None:
        raise ApplyError(
            f"{site.path}: takes no index of experts with weights of the same shape, so no route is local"
        )
    index = arguments[routing.index]
    away = (index < first) | (index >= last)
    arguments = {name: site.region.enter(value) for name, value in arguments.items()}
    arguments[routing.index] = (index - first).masked_fill(away, 0)
    arguments[routing.weights] = arguments[routing.weights].masked_fill(away, 0.0)
    return tuple(arguments.pop(place) for place in range(len(args))), {str(key): v for key, v in arguments.items()}


EP_DISPATCH_EXPERTS = Style(
    name="ep_dispatch_experts",
    does="a module of whole experts: each rank takes the routes to its own, the outputs are summed",
    level=Level.MODULE,
    enters=Enters.INPUTS,
    collective=SUM_OVER_RANKS,
    expert=True,
    before=_before,
    after=summed_output,
    check=local_experts,
    example=ROUTED,
)
