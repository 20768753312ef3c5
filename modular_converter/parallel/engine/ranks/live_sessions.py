"""All sessions of this process: they end with the interpreter, and a forked child forgets them."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Any

from modular_converter.parallel.engine.ranks.fair_lock import FairLock
from modular_converter.parallel.engine.ranks.processes import disown


LIVE: weakref.WeakSet[Any] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for session in list(LIVE):
        session.end("the interpreter ended")


def _forget_all() -> None:
    """Forget the parent's ranks, in a forked child. It shares the selector's descriptor, which must stay unchanged."""
    for session in list(LIVE):
        for rank in session.ranks:
            disown(rank)
        session.ranks, session.unneeded, session.lock = [], [], FairLock()
        session.ended = session.ended or "this is a forked child of the process that started them"
    LIVE.clear()


os.register_at_fork(after_in_child=_forget_all)
