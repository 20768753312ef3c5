"""A lock for the callers of a session: first come, first served."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from modular_converter.parallel.errors import PlanError


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
