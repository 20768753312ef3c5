"""Whole weights from the first process of a group, one at a time, so that no other process holds the whole model."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.resolve import Piece


def refuse_everywhere(wrong: str, waits: bool, group: Any) -> bool:
    """Whether a process waits for the first one's weights.

    Raises:
        ApplyError: on all processes alike: the state of one does not fit, or the first one has none.
    """
    found: list[Any] = [None] * group.size
    dist.all_gather_object(found, (wrong, waits), group=group.group)
    said = next((text for text, _ in found if text), "")
    if said:
        raise ApplyError(f"the state does not fit the model: {said}")
    if found[0][1]:
        raise ApplyError("the first process has no state: give it there")
    return any(waiting for _, waiting in found)


def first_ones(whole: torch.Tensor | None, target: torch.Tensor, piece: Piece | None, group: Any) -> Any:
    """The first process's whole weight, on the device of the target."""
    shape = list(target.shape)
    if piece is not None and piece.dim >= 0:
        shape[piece.dim] = piece.length
    sent = torch.empty(shape, dtype=target.dtype, device=target.device)
    if group.rank == 0 and whole is not None:
        sent.copy_(whole)
    dist.broadcast(sent, group=group.group, group_src=0)
    return sent
