"""Memory that several processes share. It has no name, so that nothing is left behind, however they end.

Only the standard library is imported, so that a rank can map the memory before it imports torch.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from typing import Any


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
