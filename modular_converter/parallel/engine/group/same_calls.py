"""Compare the arguments of all processes: the collectives of different calls would mix their numbers."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
import torch.distributed as dist

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.torch_private import pytree


def everywhere(value: Any, group: ProcessGroup) -> list[Any]:
    """The values of all processes of a group, in order; all must call it."""
    found: list[Any] = [None] * group.size
    dist.all_gather_object(found, value, group=group.group)
    return found


def refuse_other_options(said: str) -> None:
    """Raise ``ApplyError`` on all processes if one of them was given other options; all processes must call it."""
    found = everywhere(said, ProcessGroup(None))
    other = next((rank for rank, text in enumerate(found) if text != found[0]), None)
    if other is not None:
        raise ApplyError(
            f"process {other} was given {found[other]}, and process 0 {found[0]}: give the same everywhere"
        )


def refuse_other_inputs(args: Any, kwargs: Any, group: ProcessGroup, data_rank: int) -> None:
    """Raise ``ApplyError`` on all processes of a group if processes of one data rank were given different batches.

    Their sums would mix different rows. Shapes and types of all tensors are compared, and the values of integers.
    """
    found = everywhere((data_rank, [_mark(leaf) for leaf in pytree.tree_leaves((args, kwargs))]), group)
    firsts: dict[int, int] = {}
    for rank, (part, marks) in enumerate(found):
        if marks == found[firsts.setdefault(part, rank)][1]:
            continue
        first, second = (dist.get_global_rank(group.group, n) if group.group else n for n in (firsts[part], rank))
        raise ApplyError(
            f"processes {first} and {second} divide the same layers or stages and were given different batches: give both "
            "the same batch; in a layout, part model.data_rank of model.layout.data, which is the same for both"
        )


def _mark(leaf: Any) -> Any:
    """The facts of one input that must be equal."""
    if not isinstance(leaf, torch.Tensor):
        return type(leaf).__name__
    about = tuple(leaf.shape), str(leaf.dtype)
    if leaf.is_floating_point() or leaf.is_complex() or leaf.is_meta:
        return about  # computed values may be rounded differently on other devices
    return *about, digest(leaf)


def digest(tensor: torch.Tensor) -> str:
    """A tensor's numbers in short."""
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(data.tobytes()).hexdigest()
