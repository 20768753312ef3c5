"""One rank: it joins the group, then loads, runs and drops models as the main process asks.

Messages are ``(kind, ...)``. Each gets one answer: a first byte (see ``protocol``), the seconds of the work, and a pickle.
A pickle that was sent early, before the GPU was done, is not sent a second time. Before the rank is connected, it imports
only the standard library, so that the main process notices its end from the first moment.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import multiprocessing.util
import os
import pickle
import select
import signal
import threading
import time
import traceback
import warnings
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any

from modular_converter.parallel.ranks.protocol import FAILURE, LOOPBACK, WORKER, Arena, Progress, Start


WATCH_S = 1.0
# Seconds to poll between calls on GPUs: on a virtual machine a sleeping process wakes 0.13 ms late.
PATIENCE_S = 0.002


def serve(pipe: Connection, lifeline: Connection, start: Start) -> None:
    """Answer messages until the pipe closes. The process ends with the main process, even in the middle of a call."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole foreground group; the main process decides
    threading.Thread(target=_watch, args=(lifeline, os.getppid()), daemon=True).start()
    log, down, up, progress = (recv_handle(pipe) for _ in range(4))
    faulthandler.enable(log)
    faulthandler.register(signal.SIGUSR1, log)
    try:
        worker = _join(pipe, start, Arena(down), Arena(up), Progress(Arena(progress)))
    except BaseException as error:
        pipe.send_bytes(FAILURE + pickle.dumps((traceback.format_exc(), None)))
        raise SystemExit(1) from error
    patience = 0.0 if start.device == "cpu" else PATIENCE_S
    try:
        worker.answer(None)
        while True:
            worker.handle(receive(pipe, patience))
    except (EOFError, OSError):  # the main process has closed the pipe, before an answer or after it
        _leave()


def receive(pipe: Connection, patience_s: float) -> bytes:
    """The next message; polls for ``patience_s`` before it sleeps."""
    if patience_s:
        look = select.poll()
        look.register(pipe, select.POLLIN)
        until = time.perf_counter() + patience_s
        while not look.poll(0) and time.perf_counter() < until:
            pass
    return pipe.recv_bytes()


def _leave() -> None:
    """Release the resources of multiprocessing, such as semaphores, and end without the interpreter's clean-up.

    That would destroy communicators and the GPU's context, which takes seconds and can hang.
    """
    multiprocessing.util._exit_function()  # type: ignore[attr-defined]
    os._exit(0)


def _watch(lifeline: Connection, parent: int) -> None:
    """End this process when the main process has ended, even in the middle of a collective.

    A signal at the parent's death would come too early, at the end of the *thread* that started this process.
    """
    while True:
        try:
            if lifeline.poll(WATCH_S):
                break
        except (EOFError, OSError):
            break
        if os.getppid() != parent:
            break
    os._exit(0)


def _join(pipe: Connection, start: Start, down: Arena, up: Arena, progress: Progress) -> Any:
    os.environ.update(RANK=str(start.rank), LOCAL_RANK=str(start.rank), WORLD_SIZE=str(start.size))
    if start.rank:
        warnings.simplefilter("ignore")
    import datetime

    import torch
    import torch.distributed as dist

    from modular_converter.parallel.torch_private import TCPStore

    module, _, name = start.worker.partition(":")
    worker = getattr(importlib.import_module(module), name)
    if start.worker == WORKER:
        # Every model needs it. It takes 5 s on a host with GPUs, while the main process works, too.
        with contextlib.suppress(ImportError):
            importlib.import_module("transformers.modeling_utils")
    torch.set_num_threads(start.threads)
    torch.set_grad_enabled(False)
    _talk_on_this_machine()
    device = torch.device(start.device)
    store = TCPStore(*start.store, is_master=False, timeout=datetime.timedelta(seconds=60))
    limit = datetime.timedelta(seconds=start.limit_s + 60.0)  # the main process ends the ranks first
    more: dict[str, Any] = {}
    if device.type == "cuda":
        torch.cuda.set_device(device)
        more["device_id"] = device
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=start.rank, world_size=start.size, timeout=limit, **more)
    _quiet_library(start.rank)
    return worker(pipe, device, down, up, progress, time.perf_counter)


def _talk_on_this_machine() -> None:
    """Let gloo, which has no password, listen where no other machine reaches it, unless the caller has chosen."""
    import psutil

    interfaces = psutil.net_if_addrs().items()
    local = [name for name, addresses in interfaces if any(found.address == LOOPBACK for found in addresses)]
    if local:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", local[0])


def _quiet_library(rank: int) -> None:
    """Silence transformers' warnings on other ranks than the first, and keep its tensor parallelism off."""
    try:
        from transformers.utils import logging
    except ImportError:
        return
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)
    if rank:
        logging.set_verbosity_error()
