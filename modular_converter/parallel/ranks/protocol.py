"""What the main process and a rank share: the first bytes of messages, memory without a name, and the progress of a call.

Only the standard library is imported here, because a rank reads this and maps the memory before it imports torch. Memory
has no name, so that nothing is left behind, however the processes end.

Two counters, of collectives and of tokens, show whether a rank is late or waits for a failed rank, and let all ranks
leave a call at the same token. A token costs half a microsecond, and no message.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import time
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


# The first byte of a rank's message: an answer; an error (traceback and exception); an answer that could not be pickled;
# an event before the answer; an answer before the GPU is done; an error after which the rank cannot go on.
ANSWER, FAILURE, UNSENT, EVENT, EARLY, FATAL = b"A", b"F", b"U", b"E", b"P", b"X"
# The second part of an answer: the seconds of the call on the rank.
SECONDS = struct.Struct("=d")
HEAD = len(ANSWER) + SECONDS.size
# The kind of the one message that gets no answer.
FORGET = "forget"
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


_ALIGN = 64


class Arena:
    """An area that its owner can enlarge; the other side maps it again when it needs bytes beyond its mapping.

    Args:
        descriptor: of an open file without a name; ``create`` makes one.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.map: mmap.mmap | None = None
        self._closing: weakref.finalize[Any, Any] | None = None

    @classmethod
    def create(cls) -> Arena:
        """An empty area of this process."""
        if hasattr(os, "memfd_create"):
            return cls(os.memfd_create("modular-parallel"))
        descriptor, path = tempfile.mkstemp(prefix="modular-parallel-")
        os.unlink(path)
        return cls(descriptor)

    def reserve(self, length: int) -> mmap.mmap:
        """The area with at least ``length`` bytes, rounded up to a power of two. Only the owner grows it."""
        if self.map is None or len(self.map) < length:
            size = max(1 << 16, 1 << (length - 1).bit_length())
            if os.fstat(self.descriptor).st_size < size:
                os.ftruncate(self.descriptor, size)
            self.map = self._mapped(size)
        return self.map

    def view(self, offset: int, length: int) -> Any:
        """A writable view of bytes that the owner has reserved."""
        end = offset + length
        if self.map is None or len(self.map) < end:
            self.map = self._mapped(os.fstat(self.descriptor).st_size)
        return memoryview(self.map)[offset:end]

    def _mapped(self, size: int) -> mmap.mmap:
        """Map the area. From now on the descriptor is closed when the object is dropped.

        Not before: a caller that takes only the descriptor of a new area, as a file without a name, closes it itself.
        """
        if self._closing is None:
            self._closing = weakref.finalize(self, os.close, self.descriptor)
            self._closing.atexit = False
        return mmap.mmap(self.descriptor, size)

    def release(self) -> None:
        """Return the memory to the system, as the owner; the area can be used again."""
        self.map = None
        os.ftruncate(self.descriptor, 0)

    def close(self) -> None:
        """Unmap it in this process."""
        self.map = None
        if self._closing is not None:
            self._closing()
        elif self.descriptor >= 0:
            os.close(self.descriptor)
        self.descriptor = -1


def aligned(offset: int) -> int:
    """The next offset at which a tensor of any type may begin."""
    return -(-offset // _ALIGN) * _ALIGN


_MET, _STEPS, _STOP = range(3)
_CELLS = 3
_GO, _ASKED = 0, -1
# After this time, every rank that has not seen the request has counted its step, and the count is visible.
_SEEN_S = 0.01


class CallStopped(Exception):
    """The main process has asked the ranks to leave the call."""


class Progress:
    """The counters of one rank.

    Args:
        arena: of this rank alone; the main process makes it.
    """

    def __init__(self, arena: Arena, owner: bool = False) -> None:
        self.arena = arena
        if owner:
            arena.reserve(8 * _CELLS)
        self.cells: Any = arena.view(0, 8 * _CELLS).cast("q")

    @property
    def met(self) -> int:
        """The collectives that the rank has entered in this call."""
        found: int = self.cells[_MET]
        return found

    def begin(self) -> None:
        """Reset all counters; called by the main process while the ranks are idle."""
        self.cells[_MET] = self.cells[_STEPS] = self.cells[_STOP] = 0

    def meet(self) -> None:
        """Count a collective; on the rank, before it."""
        self.cells[_MET] += 1

    def step(self) -> None:
        """Count a token, on the rank. Raises ``CallStopped`` if all ranks leave the call at this token."""
        cells = self.cells
        cells[_STEPS] += 1
        while cells[_STOP] == _ASKED:
            time.sleep(0.001)
        if cells[_STOP] != _GO and cells[_STEPS] >= cells[_STOP]:
            raise CallStopped

    def close(self) -> None:
        """Unmap the memory in this process."""
        self.cells.release()
        self.arena.close()


def stop_all(progress: Sequence[Progress]) -> None:
    """Let all ranks leave their call at the same token, the first that no rank has passed."""
    for one in progress:
        one.cells[_STOP] = _ASKED
    time.sleep(_SEEN_S)
    last = max(one.cells[_STEPS] for one in progress)
    for one in progress:
        one.cells[_STOP] = last + 1
