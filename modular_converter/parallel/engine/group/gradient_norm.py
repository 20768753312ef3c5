"""The norm of all gradients of a sharded model, as if it were whole."""

from __future__ import annotations

from typing import Any

import torch

from modular_converter.parallel.shard.apply import Applied


def gradients_of(applied: Applied) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Gradients of shares, and of whole parameters."""
    shares: list[torch.Tensor] = []
    whole: list[torch.Tensor] = []
    for name, parameter in applied.model.named_parameters():
        if parameter.grad is not None:
            piece = applied.resolution.pieces.get(name)
            (whole if piece is None or piece.dim < 0 else shares).append(parameter.grad)
    return shares, whole


def norm_of(shares: list[torch.Tensor], whole: list[torch.Tensor], kind: float, group: Any) -> torch.Tensor:
    if not shares and not whole:
        return torch.zeros(())
    parts = [[torch.linalg.vector_norm(g.float(), kind) for g in gradients] for gradients in (shares, whole)]
    place = (shares or whole)[0].device
    empty = torch.zeros((), device=place)
    if kind == float("inf"):
        local = torch.stack([*parts[0], *parts[1], empty]).max()
        return torch.stack(group.all_gather(local.view(1))).max()
    sums = [torch.stack([*norms, empty]).pow(kind).sum() for norms in parts]
    total: torch.Tensor = group.all_reduce(sums[0].view(1))[0] + sums[1]
    return total.pow(1.0 / kind)
