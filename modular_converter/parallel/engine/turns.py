"""A lock for callers of a session: who came first is served first."""

from __future__ import annotations

import threading
from collections import deque


class Turns:
    """A lock whose waiters get it in the order in which they came."""

    def __init__(self) -> None:
        self.guard = threading.Lock()
        self.waiting: deque[threading.Lock] = deque()
        self.taken = False

    def __enter__(self) -> None:
        with self.guard:
            if not self.taken:
                self.taken = True
                return
            mine = threading.Lock()
            mine.acquire()
            self.waiting.append(mine)
        mine.acquire()

    def __exit__(self, *exception: object) -> None:
        with self.guard:
            if self.waiting:
                self.waiting.popleft().release()
            else:
                self.taken = False
