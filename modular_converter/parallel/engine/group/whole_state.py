"""Whole weights from the first process of a group, one at a time, so that no other process holds the whole model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from modular_converter.parallel.engine.checkpoint.save_model import save_model, saved_names
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.shard.apply import Applied, put_together


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


def save_from_group(model: Any, applied: Applied, folder: Path | None, max_shard_size: int | str | None) -> None:
    """Save a sharded model, one file's weights at a time; all processes must call it.

    Args:
        folder: None in processes that write nothing.
    """
    pieces, group = applied.resolution.pieces, applied.group
    state, shapes = saved_names(model), model.__dict__["_whole_shapes"]
    whole = {
        name: torch.empty(shapes.get(name, one.shape), dtype=one.dtype, device="meta") for name, one in state.items()
    }

    def fetch(name: str) -> torch.Tensor:
        local, piece = state[name].detach().as_subclass(torch.Tensor), pieces.get(name)
        return (local if piece is None or piece.dim < 0 else put_together(local, piece, group)).cpu()

    save_model(model, whole, fetch, folder, group.size, max_shard_size)
