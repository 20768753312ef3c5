"""One rank's process as the main process sees it: how it is started, and what must not be imported twice."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.reduction import send_handle
from typing import Any

import torch

from modular_converter.parallel.engine.shared_memory import Arena
from modular_converter.parallel.engine.worker import Start, serve


MISSING_GUARD = 77
GUARD_TEXT = (
    "parallelize starts processes that import your main module again, and there it is called once more: put the call "
    'under `if __name__ == "__main__":`, and what it needs with it'
)


@dataclass
class Rank:
    """One process with its pipe, its areas of memory and the file for its last words."""

    process: Any
    pipe: Any
    lifeline: Any
    up: Arena
    log: int
    arrived: deque[bytes] = field(default_factory=deque)
    mail: dict[str, torch.Tensor] = field(default_factory=dict)


def begin(context: Any, start: Start, down: Arena) -> Rank:
    """Start one process and hand it its areas of memory: the shared way down, its own way up, its log."""
    ours, theirs = context.Pipe()
    far, near = context.Pipe(duplex=False)
    process = context.Process(
        target=serve, args=(theirs, far, start), daemon=True, name=f"modular-parallel-rank-{start.rank}"
    )
    with _argument_free_main():
        process.start()
    theirs.close()
    far.close()
    rank = Rank(process, ours, near, Arena.create(), Arena.create().descriptor)
    try:
        for descriptor in (rank.log, down.descriptor, rank.up.descriptor):
            send_handle(ours, descriptor, process.pid)
    except OSError:
        pass  # it died while it started: the wait for its answer says how
    return rank


@contextlib.contextmanager
def _argument_free_main() -> Iterator[None]:
    """A main module that was read from standard input cannot be imported again: ranks do without it."""
    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if main is None or path is None or os.path.exists(path) or getattr(main, "__spec__", None) is not None:
        yield
        return
    del main.__file__
    try:
        yield
    finally:
        main.__file__ = path


def refuse_import_in_child() -> None:
    """End a process that is still importing the main module of the one that started it."""
    if getattr(multiprocessing.process.current_process(), "_inheriting", False):
        print(GUARD_TEXT, file=sys.stderr, flush=True)
        os._exit(MISSING_GUARD)
