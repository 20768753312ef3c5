"""The processes of the ranks, seen from the main process: start them, wait for all together, end them; a fair lock."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import pickle
import selectors
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.reduction import send_handle
from typing import Any

from modular_converter.parallel.errors import PlanError, RankError
from modular_converter.parallel.ranks.packing import ResultReader
from modular_converter.parallel.ranks.protocol import (
    EARLY,
    EVENT,
    FAILURE,
    FATAL,
    Arena,
    Progress,
    Start,
    stop_all,
)
from modular_converter.parallel.ranks.worker import serve


# The longest single wait, also for the ranks. A signal just before a wait does not interrupt it: Ctrl-C would be noticed
# only at the end of the wait, which never comes if a rank hangs.
WAIT_S = 1.0


class FairLock:
    """A lock that threads get in the order of their requests. An interrupted thread leaves the queue.

    Args:
        freed: called when the lock is free again; it may take the lock itself.
    """

    def __init__(self, freed: Callable[[], None] | None = None) -> None:
        self.freed = freed
        self.guard = threading.RLock()  # a signal's handler may run while this thread holds it
        self.waiting: deque[threading.Lock] = deque()
        self.taken = False
        self.owner = 0

    def take_if_free(self) -> bool:
        """Take the lock if it is free; for code that runs at any moment, such as a finalizer."""
        with self.guard:
            if self.taken:
                return False
            self.taken, self.owner = True, threading.get_ident()
            return True

    def __enter__(self) -> None:
        """Take the lock; see ``refuse_owner``."""
        with self.guard:
            if self.take_if_free():
                return
            self.refuse_owner()
            mine = threading.Lock()
            mine.acquire()
            self.waiting.append(mine)
        try:
            while not mine.acquire(timeout=WAIT_S):
                pass
        except BaseException:
            self._give_up(mine)
            raise
        self.owner = threading.get_ident()

    def refuse_owner(self) -> None:
        """Raise ``PlanError`` in the thread that has the lock already, which would wait for itself."""
        if self.owner == threading.get_ident():
            raise PlanError(
                "a call of this model, or of another model on the same ranks, is running in this thread: a streamer or a "
                "signal handler cannot use the ranks until it has ended"
            )

    def __exit__(self, *exception: object) -> None:
        self.leave()

    def leave(self) -> None:
        """Release the lock, in the thread that has it."""
        with self.guard:
            self.owner = 0
            if self.waiting:
                self.waiting.popleft().release()
            else:
                self.taken = False
        if not self.taken and self.freed is not None:
            self.freed()

    def _give_up(self, mine: threading.Lock) -> None:
        """Leave the queue; if the lock has arrived meanwhile, release it."""
        with self.guard:
            if mine in self.waiting:
                self.waiting.remove(mine)
            else:
                self.leave()


# The exit code of a process that ended because the main module has no guard.
MISSING_GUARD = 77
GUARD_TEXT = (
    "parallelize starts processes that import your main module, and the import would call parallelize again: put the "
    'call under `if __name__ == "__main__":`, with the code that it needs'
)


def refuse_import_in_child() -> None:
    """End this process if it is a spawned process that is still importing the main module."""
    if getattr(multiprocessing.process.current_process(), "_inheriting", False):
        print(GUARD_TEXT, file=sys.stderr, flush=True)
        os._exit(MISSING_GUARD)


def refuse_daemon() -> None:
    """Raise ``RankError`` in a daemonic process, which may not start others."""
    if multiprocessing.current_process().daemon:
        raise RankError(
            "this is a daemonic process (of a multiprocessing pool or a task queue), which may not start others; "
            "call parallelize in a process that is not daemonic"
        )


@contextlib.contextmanager
def main_without_missing_file() -> Iterator[None]:
    """Hide a main module from the ranks if it was read from standard input: they cannot import it again."""
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


# Seconds after a rank's failure: for a rank in a collective that the failed rank never enters, and for other ranks, which
# may be on their way to the same error.
GRACE_S = 2.0
LATE_S = 60.0
# Files in the traceback of a rank that waits in a collective.
_WAITING = ("inference/plain_forwards.py", "distributed_c10d.py", "shard/collectives.py")
_HUNG_SHOWN = 4


@dataclass
class Rank:
    """One process with its pipe, its areas of memory, and the file for its output at a crash.

    Attributes:
        arrived: answers that were received and not yet read.
        interrupted: whether an interruption may have left half a message in the pipe.
    """

    process: Any
    pipe: Any
    lifeline: Any
    up: Arena
    progress: Progress
    log: int
    arrived: deque[bytes] = field(default_factory=deque)
    reader: ResultReader = field(default_factory=ResultReader)
    interrupted: bool = False


def begin(context: Any, start: Start, down: Arena) -> Rank:
    """Start one process and send it its areas of memory: for messages down, for answers up, for progress and its log."""
    ours, theirs = context.Pipe()
    far, near = context.Pipe(duplex=False)
    up, log = Arena.create(), Arena.create().descriptor  # before the process, which may die at any moment
    progress = Progress(Arena.create(), owner=True)
    process = context.Process(
        target=serve, args=(theirs, far, start), daemon=True, name=f"modular-parallel-rank-{start.rank}"
    )
    with main_without_missing_file():
        process.start()
    theirs.close()
    far.close()
    rank = Rank(process, ours, near, up, progress, log)
    with contextlib.suppress(OSError):  # it died: the wait for its answer reports this
        for descriptor in (log, down.descriptor, up.descriptor, progress.arena.descriptor):
            send_handle(ours, descriptor, process.pid)
    return rank


def finish(ranks: list[Rank], grace_s: float) -> None:
    """Close the ranks' pipes, which ends idle ranks, kill the others, and release their resources.

    Args:
        grace_s: seconds for all ranks together to end by themselves.
    """
    deadline = time.monotonic() + grace_s
    try:
        for rank in ranks:
            rank.reader.close()
            with contextlib.suppress(OSError):
                rank.pipe.close()
        for rank in ranks:
            rank.process.join(max(0.0, deadline - time.monotonic()))
    finally:  # also if the wait is interrupted
        for rank in ranks:
            if rank.process.exitcode is None:
                rank.process.kill()
    for rank in ranks:
        rank.process.join(10.0)
        rank.lifeline.close()
        rank.up.close()
        rank.progress.close()
        os.close(rank.log)


def disown(rank: Rank) -> None:
    """Let go of a rank in a forked child: close its pipes, and keep multiprocessing from ending it with the child."""
    multiprocessing.process._children.discard(rank.process)  # type: ignore[attr-defined]
    for pipe in (rank.pipe, rank.lifeline):
        with contextlib.suppress(OSError):
            pipe.close()


class Lost(Exception):
    """The ranks cannot go on together and must all be ended; ``reason`` is a short text, ``error`` that of a rank."""

    def __init__(self, reason: str, text: str, error: Exception | None = None) -> None:
        super().__init__(text)
        self.reason, self.error = reason, error


Event = Callable[[str, Any], None]


def collect_answers(
    ranks: list[Rank],
    selector: selectors.BaseSelector,
    limit_s: float,
    event: Event | None,
    early: Callable[[int, bytes], None],
    spin_s: float = 0.0,
    late_s: float = LATE_S,
) -> tuple[list[bytes], Exception | None]:
    """Wait for one message of each rank.

    Args:
        selector: of each rank's pipe and process.
        limit_s: seconds without a message after which the missing ranks count as hung.
        event: called with the kind and value of each event that precedes an answer.
        early: called with the number of a rank and its answer, if the answer is sent before the GPU is done.
        spin_s: seconds to poll without sleep, if this process has no other thread.
        late_s: seconds after a rank's failure in which the others may answer.

    Returns:
        The messages in the order of the ranks, and the error that ``event`` raised.

    Raises:
        Lost: a rank died, hung, or failed while the others wait for it.
        BaseException: an interruption of the wait; messages that have arrived stay for the next wait.
    """
    trouble: Exception | None = None
    start = time.monotonic()
    deadline, failed_at = start + limit_s, math.inf  # messages extend the first, not the second
    while missing := [number for number, rank in enumerate(ranks) if not rank.arrived]:
        left = min(deadline, failed_at + _patience(ranks, missing, late_s)) - time.monotonic()
        ready = _ready(selector, start + spin_s, left)
        if not ready and left <= WAIT_S:
            raise _hung(ranks, missing, limit_s)
        for kind, number in ready:
            data = _received(ranks[number]) if kind == "pipe" else b""
            if not data:
                # Also if it has answered: the others would wait for it in the next call.
                raise _died(ranks, number)
            if data[:1] == EVENT:
                if trouble is None:
                    trouble = _handled(event, data)
                    if trouble is not None:
                        stop_all([rank.progress for rank in ranks])
                deadline = time.monotonic() + limit_s  # a rank that sends is not hung
            elif data[:1] == EARLY:
                early(number, data[1:])
            elif data[:1] in (FAILURE, FATAL):
                failed_at = min(failed_at, time.monotonic())
    return _taken(ranks), trouble


def _patience(ranks: list[Rank], missing: list[int], late_s: float) -> float:
    """The seconds that other ranks get after a failure: few if one of them waits for the failed rank."""
    answered = [(rank.arrived[0][:1], rank.progress.met) for rank in ranks if rank.arrived]
    failed = [met for kind, met in answered if kind == FAILURE]
    stuck = failed and any(ranks[number].progress.met > min(failed) for number in missing)
    return GRACE_S if stuck or any(kind == FATAL for kind, _ in answered) else late_s


def _taken(ranks: list[Rank]) -> list[bytes]:
    """The first message of each rank; ``interrupted`` meanwhile, since an interruption would mix the answers to two calls."""
    for rank in ranks:
        rank.interrupted = True
    found = [rank.arrived.popleft() for rank in ranks]
    for rank in ranks:
        rank.interrupted = False
    return found


def _ready(selector: selectors.BaseSelector, awake_until: float, left: float) -> list[tuple[str, int]]:
    """The pipes with a message, then the ranks that have ended; empty after ``WAIT_S``."""
    found = _look(selector, awake_until) or selector.select(max(0.0, min(left, WAIT_S)))
    if selector.get_map() is None:
        raise Lost("they were ended", "another thread has ended the ranks")
    return sorted((key.data for key, _ in found), reverse=True)


def _look(selector: selectors.BaseSelector, until: float) -> Any:
    """Poll for messages until a point in time, unless there is a second thread, which this would block."""
    while time.monotonic() < until and threading.active_count() == 1:
        if found := selector.select(0):
            return found
    return []


def _received(rank: Rank) -> bytes:
    """The next message, which is also put into ``arrived`` if it is an answer; empty if the rank has ended."""
    rank.interrupted = True
    try:
        data: bytes = rank.pipe.recv_bytes()
    except (EOFError, OSError):
        return b""
    if data[:1] not in (EVENT, EARLY):
        rank.arrived.append(data)
    rank.interrupted = False
    return data


def _handled(event: Event | None, data: bytes) -> Exception | None:
    """Call ``event``. Its error is returned, because it must wait until all ranks have answered."""
    try:
        if event is not None:
            event(*pickle.loads(data[1:]))
    except Exception as error:
        return error
    return None


def _died(ranks: list[Rank], number: int) -> Lost:
    rank = ranks[number]
    rank.process.join(2.0)
    code = rank.process.exitcode
    if code == MISSING_GUARD:
        return Lost("the main module has no guard", GUARD_TEXT)
    how = f"by {signal.Signals(-code).name}" if code is not None and code < 0 else f"with exit code {code}"
    if code == -signal.SIGKILL:
        how += " (the system does this when memory runs out)"
    words = _failed_before(ranks)[0] or _last_output(rank, number)
    return Lost(f"rank {number} died {how}", f"rank {number} died {how}; all ranks were ended{words}")


def _hung(ranks: list[Rank], missing: list[int], limit_s: float) -> Lost:
    failure, error = _failed_before(ranks)
    for number in missing:
        with contextlib.suppress(OSError, TypeError):
            os.kill(ranks[number].process.pid, signal.SIGUSR1)
    time.sleep(0.5)
    if failure:
        return Lost("a rank failed while the others waited for it", f"all ranks were ended{failure}", error)
    message = f"ranks {missing} did not answer in {limit_s:.0f} s; all ranks were ended"
    return Lost("the time limit passed", message + "".join(_places_of_hung(ranks, missing)))


def _places_of_hung(ranks: list[Rank], missing: list[int]) -> list[str]:
    """The tracebacks of hung ranks: first of ranks that printed none, then of busy ranks, then of waiting ranks."""
    found = {number: _last_output(ranks[number], number) for number in missing}
    silent = [number for number in missing if not found[number]]
    waiting = [number for number in missing if any(mark in found[number] for mark in _WAITING)]
    others = [number for number in missing if number not in (*silent, *waiting)]
    words = [f"; rank {number} printed no traceback: it is stopped, or does not run Python" for number in silent]
    return [*words, *(found[number] for number in (*others, *waiting))][:_HUNG_SHOWN]


def _failed_before(ranks: list[Rank]) -> tuple[str, Exception | None]:
    """The first failure of a rank, in words, and its error; empty if no rank has failed."""
    for number, rank in enumerate(ranks):
        if rank.arrived and rank.arrived[0][:1] in (FAILURE, FATAL):
            text, error = pickle.loads(rank.arrived[0][1:])
            return f"; rank {number} failed:\n{text}", error
    return "", None


def _last_output(rank: Rank, number: int) -> str:
    """The traceback that the rank's interpreter wrote at a crash, or on request."""
    try:
        text = os.pread(rank.log, 20000, 0).decode("utf-8", "replace").strip()
    except OSError:  # another thread has ended it
        return ""
    return f"; rank {number} was here:\n{text}" if text else ""
