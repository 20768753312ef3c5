"""The norm of all gradients of a sharded model, as if it were whole."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from modular_converter.parallel.engine.group.spread import Spread
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
    """
    norms: dict[_Cut, list[torch.Tensor]] = {cut: [torch.zeros((), device=place)] for cut in _CUTS}
    data: ProcessGroup | None = None
    for one in weights:
        spread_over = one.data()
        data = spread_over or data
        if one.stored.grad is not None and is_first_replica(one):
            gradient = one.local(one.stored.grad)
            exact = torch.promote_types(gradient.dtype, torch.float32)
            found = torch.linalg.vector_norm(gradient, kind, dtype=exact)
            norms[one.cut, spread_over is not None].append(found.to(place))
    if kind == float("inf"):
        largest = torch.stack([norm for cut in _CUTS for norm in norms[cut]]).max().view(1)
        for one_group in (group, data, stages):
            largest = torch.stack(one_group.all_gather(largest)).amax(0) if one_group is not None else largest
        return largest[0]
    sums = torch.stack([torch.stack(norms[cut]).pow(kind).sum() for cut in _CUTS])
    if data is not None:
        sums[[1, 3]] = data.all_reduce(sums[[1, 3]])
    if group is not None and group.size > 1:
        sums[2:] = group.all_reduce(sums[2:])
    total = sums.sum()
    if stages is not None:
        total = stages.all_reduce(total)
    return total.pow(1.0 / kind)


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
