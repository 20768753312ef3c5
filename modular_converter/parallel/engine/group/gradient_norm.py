"""The norm of all gradients of a sharded model, as if it were whole."""

from __future__ import annotations

from typing import Any

import torch

from modular_converter.parallel.shard.apply import Applied


def gradients_of(applied: Applied) -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
    """Gradients of shares, of whole parameters, and of shares that a rank before has too, so that it counts them."""
    shares: list[torch.Tensor] = []
    whole: list[torch.Tensor] = []
    copies: list[torch.Tensor] = []
    rank, size = applied.group.rank, applied.group.size
    for name, parameter in applied.model.named_parameters():
        if parameter.grad is not None:
            piece = applied.resolution.pieces.get(name)
            if piece is None or piece.dim < 0:
                whole.append(parameter.grad)
            else:
                first = piece.units is None or piece.units.is_first_copy(rank, size)
                (shares if first else copies).append(parameter.grad)
    return shares, whole, copies


def norm_of(
    shares: list[torch.Tensor], whole: list[torch.Tensor], kind: float, group: Any, place: torch.device
) -> torch.Tensor:
    """The norm on ``place``; all ranks must call it."""
    parts = [[torch.linalg.vector_norm(g.float(), kind) for g in gradients] for gradients in (shares, whole)]
    empty = torch.zeros((), device=place)
    if kind == float("inf"):
        local = torch.stack([*parts[0], *parts[1], empty]).max()
        return torch.stack(group.all_gather(local.view(1))).max()
    sums = [torch.stack([*norms, empty]).pow(kind).sum() for norms in parts]
    total: torch.Tensor = group.all_reduce(sums[0].view(1))[0] + sums[1]
    return total.pow(1.0 / kind)
