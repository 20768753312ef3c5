"""Notice that a process alone has called a method that all processes must call, before it waits for the others in vain."""

from __future__ import annotations

import datetime

import torch.distributed as dist
from torch.distributed.distributed_c10d import _get_default_store

from modular_converter.parallel.errors import ApplyError


# Seconds in which all processes must call the method.
LIMIT_S = 15.0
_MET = [0]


def meet(method: str) -> None:
    """Wait until all processes have called a method; all processes must call this.

    A process that gives up withdraws, so that the next call of all of them meets again. The second round keeps a process
    from going on that has seen another one just before it withdrew.

    Raises ``ApplyError`` with the missing processes after ``LIMIT_S``.
    """
    rank, size, store = dist.get_rank(), dist.get_world_size(), _get_default_store()
    for turn in ("here", "go"):
        keys = [f"modular_converter/{_MET[0]}/{turn}/{number}" for number in range(size)]
        store.set(keys[rank], method)
        try:
            store.wait(keys, datetime.timedelta(seconds=LIMIT_S))
        except (RuntimeError, ValueError) as error:  # DistStoreError is a RuntimeError
            missing = [number for number, key in enumerate(keys) if not store.check([key])]
            store.delete_key(f"modular_converter/{_MET[0]}/here/{rank}")
            store.delete_key(keys[rank])
            raise ApplyError(
                f"process {rank} has called {method}, and processes {missing} have not within {LIMIT_S:.0f} s: all processes "
                "must call it, since each has a part of the weights; call dist.barrier() before it where one comes later"
            ) from error
    _MET[0] += 1
