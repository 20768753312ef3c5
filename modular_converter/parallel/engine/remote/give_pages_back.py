"""Return the memory of weights to the system during the hand-over of a model.

Otherwise, with ranks on CPUs, some models would be in the host's memory twice: a model that is mostly one weight, until
its last row is read, and a model of many weights below 32 MB, whose memory the allocator may keep.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
from collections.abc import Callable
from typing import Any

import torch

from modular_converter.parallel.torch_private import uses_of_storage


# Smaller weights fit into two parcels, and are freed soon enough.
LARGE_BYTES = 64 << 20
_DONTNEED = getattr(mmap, "MADV_DONTNEED", None)


def is_alone(tensor: torch.Tensor) -> bool:
    """Whether a large CPU tensor alone owns its memory, allocated by torch, so that it can be emptied."""
    if _advise() is None or tensor.device.type != "cpu" or not tensor.is_contiguous():
        return False
    storage: Any = tensor.untyped_storage()
    size = tensor.numel() * tensor.element_size()
    if size < LARGE_BYTES or storage.nbytes() != size or storage.is_shared() or not storage.resizable():
        return False
    return bool(uses_of_storage(storage._cdata) <= _uses_of_one())


def empty_rows(tensor: torch.Tensor, first: int, last: int) -> None:
    """Return the pages within these rows to the system. Their content is lost."""
    advise = _advise()
    row = tensor[0].numel() * tensor.element_size()
    start = -(-(tensor.data_ptr() + first * row) // mmap.PAGESIZE) * mmap.PAGESIZE
    end = (tensor.data_ptr() + last * row) // mmap.PAGESIZE * mmap.PAGESIZE
    if advise is not None and end > start:
        advise(start, end - start, _DONTNEED)


def trim_heap() -> None:
    """Return freed memory of the allocator's heap to the system; glibc may have put weights there."""
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@functools.lru_cache(maxsize=1)
def _malloc_trim() -> Callable[[int], int] | None:
    found: Any = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if found is None:
        return None
    found.argtypes = (ctypes.c_size_t,)
    made: Callable[[int], int] = found
    return made


@functools.lru_cache(maxsize=1)
def _uses_of_one() -> int:
    """torch's use count of an unshared tensor's storage, including the use by the object that asks."""
    alone = torch.empty(1)
    storage: Any = alone.untyped_storage()
    return int(uses_of_storage(storage._cdata))


@functools.lru_cache(maxsize=1)
def _advise() -> Callable[[int, int, Any], int] | None:
    """The system's ``madvise``, if it has ``MADV_DONTNEED``."""
    found: Any = getattr(ctypes.CDLL(None), "madvise", None)
    if _DONTNEED is None or found is None:
        return None
    found.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    made: Callable[[int, int, Any], int] = found
    return made
