"""A process that waits for one that has left a call, or has ended, is let go within seconds.

torch lets a process wait in a collective until the limit of its group, half an hour. While processes compute together
(`Block`), a thread looks each second whether one of them has left; if this one does not follow in
``REFUSED_LIMIT_S``, it closes the connections of their groups, so that all collectives end with an error. A GPU computes
on after the code of a block: the process waits in what reads its results, which is no code of this package.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.torch_private import default_store, world


logger = logging.getLogger(__name__)
# Seconds in which a process that has left a call, or was refused something, must go on as the others do.
REFUSED_LIMIT_S = 5.0
# Seconds between two looks.
LOOK_S = 1.0
# A message that nobody sends.
_TAG = 2**31 - 7
_BLOCKS: list[Block] = []
_ON_GPU: dict[tuple[str, ...], tuple[Block, Any]] = {}
"""Keys of calls -> the last block whose code is over, and the event behind its work on the GPU."""
_THREADS: list[threading.Thread] = []
_END = threading.Event()


class Calls(Protocol):
    """What `Block` looks at: see ``CallsOfAll``."""

    key: str
    ranks: list[int]
    broken: ApplyError | None

    def of_left(self, store: Any) -> ApplyError | None:
        """The error about a process that has left, or has ended."""


class Block:
    """What a process computes together with others, as a context.

    Args:
        calls: of the models that compute.

    Attributes:
        found: why its collectives were ended; None if they were not.
    """

    def __init__(self, calls: Sequence[Calls]) -> None:
        self.calls, self.since, self.found = calls, 0.0, None

    calls: Sequence[Calls]
    since: float
    found: ApplyError | None

    def __enter__(self) -> None:
        if self.calls:
            _BLOCKS.append(self)
            if not _THREADS:
                _THREADS.append(threading.Thread(target=_watch, daemon=True))
                _THREADS[0].start()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self.calls:
            _BLOCKS.remove(self)
            if self.found is not None and error is None:  # a GPU's collective that was ended may leave any numbers
                raise self.found
            if error is None and (behind := _work_of_gpu()) is not None:
                _ON_GPU[tuple(one.key for one in self.calls)] = self, behind

    def look(self, store: Any) -> None:
        """End this block's collectives if a process has left it, and this one has not followed in ``REFUSED_LIMIT_S``."""
        found = next((one for call in self.calls if (one := call.of_left(store))), None)
        self.since = (self.since or time.monotonic()) if found else 0.0
        if found and self.found is None and time.monotonic() - self.since >= REFUSED_LIMIT_S and self in _running():
            self.found = found
            logger.error("%s", found)  # before anybody reads what the GPU's collectives leave
            for call in self.calls:
                call.broken = call.broken or found
                store.set(f"{call.key}/broken", str(found))
            _close({rank for call in self.calls for rank in call.ranks})


def computes_together() -> bool:
    """Whether code of this process runs in a block, in which an error of one process is told to all."""
    return bool(_BLOCKS)


def _work_of_gpu() -> Any:
    """An event behind all that the GPU of this process has been given; None if it has none."""
    initialized = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    if not initialized or torch.cuda.is_current_stream_capturing():
        return None
    event: Any = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record()
    return event


def _running() -> set[Block]:
    """The blocks that compute, in code or on the GPU."""
    for key, (block, behind) in list(_ON_GPU.items()):
        if behind.query() and _ON_GPU.get(key, (None,))[0] is block:
            _ON_GPU.pop(key, None)
    return {*_BLOCKS, *(block for block, _ in list(_ON_GPU.values()))}


def _watch() -> None:
    """Look at each block that takes a while."""
    known: tuple[Any, Any] | None = None
    before: set[Block] = set()
    while not _END.wait(min(LOOK_S, REFUSED_LIMIT_S / 2)):
        with contextlib.suppress(RuntimeError, ValueError):  # the group, or the GPU, has ended
            now = _running()
            for block in now & before:
                store = default_store()
                if known is None or known[0] is not store:
                    known = store, store.clone()  # a store makes its threads wait for each other
                block.look(known[1])
            before = now


@atexit.register
def _end() -> None:
    _END.set()
    for one in _THREADS:
        one.join(10.0)  # a thread in torch's code would end the process with an error


def _close(ranks: set[int]) -> None:
    """End the collectives of all groups among these processes.

    gloo closes all connections of a group once one of its messages is late; NCCL ends its kernels, those of all groups at
    once: the end of one group waits until the GPU is idle.
    """
    on_gpus = []
    for group in list(world.pg_map):
        members = dist.get_process_group_ranks(group)
        if len(members) < 2 or not ranks.issuperset(members):
            continue
        for device in group._device_types:
            backend = group._get_backend(device)
            if device.type == "cuda":
                on_gpus += [backend] if hasattr(backend, "_group_start") else []  # gloo's is that of the CPU, too
                continue
            with contextlib.suppress(RuntimeError):
                other = (dist.get_rank(group) + 1) % len(members)
                backend.recv([torch.empty(1)], other, _TAG).wait(datetime.timedelta(milliseconds=1))
    if not on_gpus:
        return
    with contextlib.suppress(RuntimeError):
        on_gpus[0]._group_start()
        for backend in on_gpus:
            backend.abort()
        on_gpus[0]._group_end()


_HERE = f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid') if os.path.exists('/proc/self/ns') else ''}"
_HANDLES: dict[int, int] = {}
"""Process -> a handle of it, or -1 if it was gone before."""
_TOLD: set[int] = set()


def tell_process(store: Any, rank: int) -> None:
    """Let other processes of this host see when this one ends, and whether it came to its end by itself."""
    store.set(f"modular_converter/process/{rank}", f"{os.getpid()} {_HERE}")
    if id(store) not in _TOLD:
        _TOLD.add(id(store))
        atexit.register(_tell_end, store, rank)


def _tell_end(store: Any, rank: int) -> None:
    with contextlib.suppress(RuntimeError):
        store.set(f"modular_converter/process/{rank}/end", "")


def ended_processes(store: Any, ranks: Iterable[int], killed_only: bool) -> list[int]:
    """Those of these processes, on this host, that have ended.

    Args:
        killed_only: leave those out that came to their end by themselves.
    """
    found = []
    for rank in ranks if hasattr(os, "pidfd_open") else ():
        place = f"modular_converter/process/{rank}"
        if not store.check([place]):
            continue
        number, _, host = store.get(place).decode().partition(" ")
        if host == _HERE and _is_gone(int(number)) and not (killed_only and store.check([f"{place}/end"])):
            found.append(rank)
    return found


def _is_gone(process: int) -> bool:
    """Also of a process for whose end its parent has not looked yet."""
    if process not in _HANDLES:
        try:
            _HANDLES[process] = os.pidfd_open(process)
        except ProcessLookupError:
            _HANDLES[process] = -1
    handle = _HANDLES[process]
    if handle >= 0:
        look = select.poll()
        look.register(handle, select.POLLIN)
        return bool(look.poll(0))
    return True
