"""Send a model to the ranks of a session, a few megabytes at a time, without the parts that they have."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import torch

from modular_converter.parallel.choice.skeleton import Item, Skeleton
from modular_converter.parallel.engine.checkpoint.recipes import Recipe
from modular_converter.parallel.engine.ranks.packing import write_tensor
from modular_converter.parallel.engine.ranks.session import Session
from modular_converter.parallel.engine.remote.give_pages_back import empty_rows, is_alone, trim_heap
from modular_converter.parallel.engine.remote.handover import Span, parcels, slot_bytes
from modular_converter.parallel.engine.remote.placement import NUMBERS, Placement
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Piece


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
