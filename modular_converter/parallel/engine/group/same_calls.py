"""All processes must make the same calls: one that calls alone is told, and different arguments are refused."""

from __future__ import annotations

import datetime
import hashlib
from typing import Any

import torch
import torch.distributed as dist

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.torch_private import default_store, pytree


# Seconds in which all processes must call the method.
LIMIT_S = 15.0
# Processes -> the number of their meetings.
_MET: dict[str, int] = {}


def meet(method: str, group: dist.ProcessGroup | None = None) -> None:
    """``meet_of`` for the processes of a group."""
    meet_of(method, dist.get_process_group_ranks(group))


def meet_of(method: str, ranks: list[int]) -> None:
    """Wait until all of these processes have called a method; all of them must call this.

    A process that gives up withdraws, so that the next call of all of them meets again. The second round keeps a process
    from going on that has seen another one just before it withdrew.

    Raises ``ApplyError`` with the missing processes after ``LIMIT_S``, and at once on all if one has called another method.
    """
    rank, store = dist.get_rank(), default_store()
    name = hashlib.sha256(repr(ranks).encode()).hexdigest()[:16]
    met = _MET.setdefault(name, 0)
    for turn in ("here", "go"):
        keys = {number: f"modular_converter/{name}/{met}/{turn}/{number}" for number in ranks}
        store.set(keys[rank], method)
        try:
            store.wait(list(keys.values()), datetime.timedelta(seconds=LIMIT_S))
        except (RuntimeError, ValueError) as error:  # DistStoreError is a RuntimeError
            missing = [number for number, key in keys.items() if not store.check([key])]
            _withdraw(name, met, rank)
            raise ApplyError(
                f"process {rank} has called {method}, and processes {missing} have not within {LIMIT_S:.0f} s: all processes "
                "must call it, since each has a part of the weights; call dist.barrier() before it where one comes later"
            ) from error
    called = dict(zip(ranks, (one.decode() for one in store.multi_get(list(keys.values())))))
    _withdraw(name, met - 1, rank)  # which no process reads any more
    _MET[name] += 1
    other = next((number for number, text in called.items() if text != method), None)
    if other is not None:
        raise ApplyError(
            f"process {rank} has called {method}, and process {other} {called[other]}: all processes must call the same, in "
            "the same order, since each has a part of the weights"
        )


def _withdraw(name: str, met: int, rank: int) -> None:
    """Remove a process's keys of a meeting."""
    for turn in ("here", "go"):
        default_store().delete_key(f"modular_converter/{name}/{met}/{turn}/{rank}")


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
            f"processes {first} and {second} divide the same layers, stages or sequences and were given different batches: give both "
            "the same batch; in a layout, part model.data_rank of model.layout.data, which is the same for both"
        )


def _mark(leaf: Any) -> Any:
    """The facts of one input that must be equal."""
    if not isinstance(leaf, torch.Tensor):
        return type(leaf).__name__
    about = tuple(leaf.shape), str(leaf.dtype)
    if leaf.is_floating_point() or leaf.is_complex() or leaf.is_meta:
        return about  # computed values may be rounded differently on other devices
    return *about, digest_of(leaf)


def digest_of(tensor: torch.Tensor) -> str:
    """A tensor's numbers in short."""
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(data.tobytes()).hexdigest()
