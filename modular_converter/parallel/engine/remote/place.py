"""Send a model to the ranks of a session, a few megabytes at a time, without the parts that they have.

The memory of weights is returned to the system meanwhile. Otherwise, with ranks on CPUs, some models would be in the
host's memory twice: a model that is mostly one weight, until its last row is read, and a model of many weights below 32
MB, whose memory the allocator may keep.
"""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch

from modular_converter.parallel.choice.skeleton import Item, Skeleton
from modular_converter.parallel.engine.checkpoint.reader import Recipe
from modular_converter.parallel.engine.remote.placement import NUMBERS, Placement, Span, parcels, slot_bytes
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.ranks.packing import write_tensor
from modular_converter.parallel.ranks.session import Session
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


# The bytes of files that all ranks together read between two answers.
_BATCH_BYTES = 2 << 30


def place(
    session: Session,
    skeleton: Skeleton,
    tensors: list[torch.Tensor],
    plan: Plan,
    pieces: dict[int, Piece],
    compile: bool,
    own_session: bool,
    tried: Placement | None = None,
    recipes: Mapping[int, Recipe] = MappingProxyType({}),
) -> Placement:
    """Hand a model to the ranks of a started session; its tensors are empty afterwards.

    Args:
        tried: a part of the model that the ranks have already.
        recipes: number of a tensor that the ranks read from files -> its recipe; the tensor here is unchanged.

    Raises ``RankError`` if a rank failed; the model has to be loaded again.
    """
    number, there = next(NUMBERS), _on_ranks_already(skeleton, pieces, tried)
    known = there.keys() | recipes.keys()
    left = tuple(replace(item, shape=(0,)) if n in known else item for n, item in enumerate(skeleton.items))
    read = [0] * len(session.devices)
    with session.lock:
        try:
            session.ask(("load", number, skeleton, str(plan), tried.number if tried is not None else 0, there))
            _stream(session, number, left, tensors)
            for n in there.keys() - recipes.keys():
                tensors[n].data = torch.empty(0, dtype=skeleton.items[n].dtype)
            for batch in _batches({n: recipe for n, recipe in recipes.items() if n not in there}):
                read = [sum(pair) for pair in zip(read, session.ask(("read", number, batch)))]
            cut = session.ask(("finish", number, str(plan), compile))[0]
        except BaseException:
            session.forget(number)
            raise
    placement = Placement(session, number, plan, skeleton, tensors, pieces, own_session)
    placement.read, placement.cut = read, frozenset(cut)
    placement.unused = weakref.finalize(placement, _drop_unused, session, number, own_session, os.getpid())
    placement.unused.atexit = False
    return placement


def _on_ranks_already(skeleton: Skeleton, pieces: dict[int, Piece], tried: Placement | None) -> dict[int, int]:
    """Number of a parameter that the ranks have in the same form -> its number in ``tried``."""
    if tried is None:
        return {}
    names = {n: item.name for n, item in enumerate(skeleton.items) if item.parameter}
    found = {n: tried.lent[name] for n, name in names.items() if name in tried.lent}
    return {
        n: other
        for n, other in found.items()
        if pieces.get(n) == tried.pieces.get(other) and skeleton.items[n].kept == tried.skeleton.items[other].kept
    }


def _batches(recipes: dict[int, Recipe]) -> Iterator[dict[int, Recipe]]:
    """Recipes in batches, so that each wait for the ranks is short."""
    batch: dict[int, Recipe] = {}
    size = 0
    for number, recipe in recipes.items():
        batch[number] = recipe
        size += math.prod(recipe.shape) * recipe.dtype.itemsize
        if size >= _BATCH_BYTES:
            yield batch
            batch, size = {}, 0
    if batch:
        yield batch


def _drop_unused(session: Session, number: int, own_session: bool, process: int) -> None:
    """End the ranks of a model that the caller has dropped, or drop it there."""
    if os.getpid() != process:  # a forked child
        return
    if own_session:
        session.end("their model was dropped")
    else:
        session.forget(number)


def _stream(session: Session, number: int, items: tuple[Item, ...], tensors: list[torch.Tensor]) -> None:
    """Write parcels into two slots in turn, while the ranks read the other slot; free each tensor when it is read."""
    slot = slot_bytes(items)
    session.down.reserve(2 * slot)
    waiting: list[Sequence[Span]] = []
    incomplete: set[int] = set()
    opened = {n for n, item in enumerate(items) if item.parameter and is_alone(tensors[n])}

    def finish_oldest() -> None:
        session.answers(session.limit_s)
        for span in waiting.pop(0):
            item = items[span.number]
            if item.parameter and span.last == item.rows:
                tensors[span.number].data = torch.empty(0, dtype=item.dtype)
            elif span.number in opened:
                incomplete.add(span.number)
                empty_rows(tensors[span.number], span.first, span.last)
        trim_heap()

    try:
        for turn, parcel in enumerate(parcels(items, slot)):
            if len(waiting) == 2:
                finish_oldest()
            base = (turn % 2) * slot
            for span in parcel:
                tensor = tensors[span.number].detach()
                rows = (tensor if tensor.dim() else tensor.view(1))[span.first : span.last]
                write_tensor(session.down, base + span.offset, rows)
            session.send(("parcel", number, base, parcel))
            waiting.append(parcel)
        while waiting:
            finish_oldest()
    except BaseException:
        for n in incomplete:  # some of its rows are lost
            tensors[n].data = torch.empty(0, dtype=items[n].dtype)
        raise
    session.down.release()
