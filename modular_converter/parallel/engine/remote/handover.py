"""Weights from the main process to the ranks and back, a few megabytes at a time through one shared area.

A model is taken apart into its skeleton and its tensors. A rank assembles the skeleton on the meta device, resolves the
plan, and copies its own share of each tensor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from modular_converter.parallel.choice.skeleton import Item
from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.shard.shares import stretches


# Of each of the two slots: small beside any model worth sharding, large beside the cost of a message.
SLOT_BYTES = 32 << 20


@dataclass(frozen=True)
class Span:
    """Rows ``first`` to ``last`` of a tensor, at ``offset`` in the shared area."""

    number: int
    first: int
    last: int
    offset: int


def parcels(items: tuple[Item, ...], slot: int) -> Iterator[list[Span]]:
    """All rows of all tensors, in parcels that fit a slot; a single row may be larger."""
    parcel: list[Span] = []
    used = 0
    for number, item in enumerate(items):
        row, first = max(item.row_bytes, 1), 0
        while first < item.rows:
            room = (slot - used) // row
            if room < 1 and parcel:
                yield parcel
                parcel, used = [], 0
                continue
            last = min(item.rows, first + max(room, 1))
            parcel.append(Span(number, first, last, used))
            used += -(-(last - first) * row // 64) * 64
            first = last
    if parcel:
        yield parcel


def slot_bytes(items: tuple[Item, ...]) -> int:
    """The bytes of a slot: room for each row, and a small part of all tensors together."""
    total = sum(-(-item.row_bytes * item.rows // 64) * 64 for item in items)
    return max(64, min(SLOT_BYTES, total // 40), max((item.row_bytes for item in items), default=0))


def moves_of(piece: Piece | None, shape: tuple[int, ...], rank: int, size: int) -> list[tuple[int, int, int]]:
    """The moves from a whole tensor to a rank's share, for ``copy_rows``; empty if the tensor stays whole."""
    if piece is None or piece.dim < 0:
        return []
    return stretches(shape[piece.dim], piece.parts, rank, size, piece.units)


def copy_rows(
    chunk: torch.Tensor, first: int, target: torch.Tensor, dim: int, moves: list[tuple[int, int, int]]
) -> None:
    """Copy rows of one tensor into another.

    Args:
        chunk: rows of the source, from ``first`` on.
        dim: the dimension of ``moves``.
        moves: ``(start in the source, start in the target, length)``; if empty, the rows are copied unchanged.
    """
    rows = chunk.shape[0]
    if not moves:
        target[first : first + rows].copy_(chunk)
    for source, goal, length in moves:
        if dim:
            target[first : first + rows].narrow(dim, goal, length).copy_(chunk.narrow(dim, source, length))
            continue
        low, high = max(source, first), min(source + length, first + rows)
        if low < high:
            target[goal + low - source : goal + high - source].copy_(chunk[low - first : high - first])
