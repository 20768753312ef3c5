"""The protocol between the main process and a rank: the settings to start a rank, and the first bytes of its messages.

Only the standard library is imported here, because a rank reads this before it imports torch.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass


# The first byte of a rank's message: an answer; an error (traceback and exception); an answer that could not be pickled;
# an event before the answer; an answer before the GPU is done; an error after which the rank cannot go on.
ANSWER, FAILURE, UNSENT, EVENT, EARLY, FATAL = b"A", b"F", b"U", b"E", b"P", b"X"
# The second part of an answer: the seconds of the call on the rank.
SECONDS = struct.Struct("=d")
HEAD = len(ANSWER) + SECONDS.size
# The ranks' store listens here, where no other machine reaches it.
LOOPBACK = "127.0.0.1"
# The class that answers messages on a rank; a name, because a rank imports it only after it is connected.
WORKER = "modular_converter.parallel.engine.remote.rank_models:Worker"


@dataclass(frozen=True)
class Start:
    """The settings of one rank.

    Attributes:
        device: ``cpu`` or ``cuda:n``.
        store: host and port of the ranks' store.
        threads: of torch.
        limit_s: seconds without a message after which the main process ends the ranks.
        worker: the class that answers messages, as ``module:Class``.
    """

    rank: int
    size: int
    device: str
    store: tuple[str, int]
    threads: int
    limit_s: float
    worker: str = WORKER
