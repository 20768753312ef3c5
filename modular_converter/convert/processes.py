"""Work on many items in this process or in several, which keep what they have read from one round of work to the next."""

from __future__ import annotations

import gc
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar


ITEMS_PER_PROCESS = {"fork": 2, "spawn": 12}
"""Fewer items than this do not justify a process: forking takes 0.03 s, spawning as long as converting three files."""
SHARES = 4
"""For each process in a round, so that none waits long for the others."""

Progress = Callable[[int], None]
S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")


class Workers(Generic[S]):
    """Processes with a copy each of something that they share. They are started once some work is worth it, and end with
    the context. What one of them reads while it works, it need not read again.
    """

    def __init__(self, shared: S, most: int) -> None:
        """
        Args:
            shared: what all work gets. This process uses it itself, too.
            most: processes at most; 0 stands for one a core.
        """
        self._shared, self._most = shared, most or os.cpu_count() or 1
        self._started: list[tuple[Any, Any]] = []
        """The processes, each with this end of its connection."""

    def __enter__(self) -> Workers[S]:
        return self

    def __exit__(self, *_: object) -> None:
        for process, connection in self._started:
            process.terminate()
            process.join()
            connection.close()

    def do(
        self,
        work: Callable[[Iterable[T], S, Progress], list[R]],
        items: Sequence[T],
        progress: Progress = lambda done: None,
    ) -> list[R]:
        """The results for some items in their order.

        Args:
            work: a function of a module: the results for a share of the items, each of which holds every n-th of them,
                so that those of one level are spread.
            items: they can be pickled, as the results can.
            progress: called with the number of items done since the last call.

        Raises what the work raises, and `RuntimeError` for a process that has ended.
        """
        method = _start_method()
        processes = min(self._most, len(items) // ITEMS_PER_PROCESS[method])
        if processes <= 1:
            return work(items, self._shared, progress)
        from multiprocessing.connection import wait  # takes longer than converting a file

        self._start(processes, method)
        parts = min(processes * SHARES, len(items))
        waiting, running, found = iter(range(parts)), dict[Any, int](), dict[int, list[R]]()
        idle: list[Any] = [connection for _, connection in self._started[:processes]]
        while len(found) < parts:
            for connection, part in zip(idle, waiting):
                connection.send((work, items[part::parts]))
                running[connection] = part
            idle = wait([*running])
            for connection in idle:
                part = running.pop(connection)
                found[part] = _received(connection)
                progress(len(found[part]))
        return [found[number % parts][number // parts] for number in range(len(items))]

    def tell(self, change: Callable[..., None], *arguments: object) -> None:
        """Change what is shared in all processes: `change(shared, *arguments)`, a function of a module."""
        change(self._shared, *arguments)
        for _, connection in self._started:
            connection.send((change, None, *arguments))

    def _start(self, processes: int, method: str) -> None:
        import multiprocessing

        context = multiprocessing.get_context(method)
        while len(self._started) < processes:
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, self._shared), daemon=True)  # type: ignore[attr-defined]
            process.start()
            there.close()  # so that the end of the process is seen here
            self._started.append((process, here))


def in_processes(
    work: Callable[[Iterable[T], S, Progress], list[R]],
    shared: S,
    items: Sequence[T],
    workers: int,
    progress: Progress,
) -> list[R]:
    """The results of one round of work, see `Workers`."""
    with Workers(shared, workers) as processes:
        return processes.do(work, items, progress)


def _start_method() -> str:
    """The way to start processes: forked if that is safe (a progress bar runs in a thread), else spawned."""
    return "fork" if sys.platform == "linux" and threading.active_count() == 1 else "spawn"


def _serve(connection: Any, shared: object) -> None:
    """In another process: work, and change what is shared, until the first process ends it, or has been killed."""
    from multiprocessing import parent_process
    from multiprocessing.connection import wait

    gc.disable()
    parent = parent_process()
    with suppress(EOFError, KeyboardInterrupt):
        while parent is not None and connection in wait([connection, parent.sentinel]):
            function, items, *arguments = connection.recv()
            if items is None:
                function(shared, *arguments)
                continue
            try:
                connection.send((function(items, shared, lambda done: None), ""))
            except Exception as error:
                connection.send((error, traceback.format_exc()))


def _received(connection: Any) -> Any:
    """The result of a share of the work."""
    try:
        result, failure = connection.recv()
    except EOFError:
        raise RuntimeError("a process that works for this one has ended") from None
    if failure:
        raise result from RuntimeError(failure)
    return result
