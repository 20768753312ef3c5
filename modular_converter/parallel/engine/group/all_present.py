"""Notice that a process alone has called a method that all processes must call, before it waits for the others in vain."""

from __future__ import annotations

import datetime
import hashlib

import torch.distributed as dist

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.torch_private import default_store


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
