"""A lock for the callers of a session: first come, first served."""

from __future__ import annotations

import threading
from collections import deque

from modular_converter.parallel.errors import PlanError


# The longest single wait, also for the ranks. A signal that comes just before a wait does not interrupt it: Ctrl-C would
# be noticed only at its end, which is never where a rank hangs.
WAIT_S = 1.0


class FairLock:
    """A lock that threads get in the order of their requests. An interrupted wait leaves the queue."""

    def __init__(self) -> None:
        self.guard = threading.RLock()  # a signal's handler may run while this thread holds it
        self.waiting: deque[threading.Lock] = deque()
        self.taken = False
        self.owner = 0

    def __enter__(self) -> None:
        """Take the lock. Raises ``PlanError`` in the thread that has it already: it would wait for itself."""
        thread = threading.get_ident()
        with self.guard:
            if not self.taken:
                self.taken, self.owner = True, thread
                return
            if self.owner == thread:
                raise PlanError(
                    "a call of this model, or of one on the same ranks, is under way in this thread: a streamer or a "
                    "signal's handler cannot use it until that has ended"
                )
            mine = threading.Lock()
            mine.acquire()
            self.waiting.append(mine)
        try:
            while not mine.acquire(timeout=WAIT_S):
                pass
        except BaseException:
            self._give_up(mine)
            raise
        self.owner = thread

    def __exit__(self, *exception: object) -> None:
        with self.guard:
            self.owner = 0
            if self.waiting:
                self.waiting.popleft().release()
            else:
                self.taken = False

    def _give_up(self, mine: threading.Lock) -> None:
        """Leave the queue; if the lock has come in the meantime, hand it to the next thread."""
        with self.guard:
            if mine in self.waiting:
                self.waiting.remove(mine)
            else:
                self.__exit__()
