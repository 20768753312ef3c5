"""The share of an axis that each rank holds, as integers: for tensors, for rows in transfer and for tables.

Each packed block of an axis consists of equal units (heads, or single entries), and each rank holds neighbouring units:
50257 rows on 2 ranks are 25129 and 25128. If the number does not divide, the first ranks hold one unit more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.plans.units import Units


def block_lengths(length: int, parts: Sequence[int]) -> list[int]:
    """The lengths of the packed blocks of an axis, from their relative lengths.

    Raises ``ApplyError`` if the axis does not divide into such parts.
    """
    if not parts:
        return [length]
    common = gcd(*parts)  # the blocks of a share have the same proportion, and may be shorter
    unit, rest = divmod(length, sum(parts) // common)
    if rest:
        raise ApplyError(f"an axis of length {length} does not divide into parts {':'.join(map(str, parts))}")
    return [unit * part // common for part in parts]


def stretches(
    length: int, parts: Sequence[int], rank: int, size: int, units: Units | None = None
) -> list[tuple[int, int, int]]:
    """A rank's slice of each block of an axis: ``(start in the whole, start in the share, length)``.

    Args:
        units: of each block; None for single entries.

    Raises ``ApplyError`` if a block does not divide into its units, has fewer units than there are ranks, or blocks of
    different lengths have no units and do not divide.
    """
    blocks = block_lengths(length, parts)
    if units is None and len(set(blocks)) > 1 and any(block % size for block in blocks):
        said = ", ".join(map(str, blocks))
        raise ApplyError(
            f"blocks of lengths {said} do not divide over {size} ranks; units= would say what goes together"
        )
    found, start, local = [], 0, 0
    for block in blocks:
        counted = units or Units(block)
        each, rest = divmod(block, counted.number * max(counted.members, 1))
        if rest:
            raise ApplyError(f"a block of length {block} is not made of {counted.number} equal units")
        first, own = counted.own(rank, size)
        found.append((start + first * each, local, own * each))
        start, local = start + block, local + own * each
    return found


def share_length(length: int, parts: Sequence[int], rank: int, size: int, units: Units | None = None) -> int:
    """The length of a rank's share of an axis. Raises as ``stretches`` does."""
    return sum(own for _, _, own in stretches(length, parts, rank, size, units))


def share_lengths(length: int, parts: Sequence[int], size: int, units: Units | None = None) -> tuple[int, ...]:
    """The lengths of the shares of all ranks. Raises as ``stretches`` does."""
    return tuple(share_length(length, parts, rank, size, units) for rank in range(size))


def is_uneven(pieces: Iterable[Piece], size: int) -> bool:
    """Whether some ranks hold more of an axis than others."""
    cut = [piece for piece in pieces if piece.dim >= 0]
    return any(len(set(share_lengths(piece.length, piece.parts, size, piece.units))) > 1 for piece in cut)


def share_shape(shape: tuple[int, ...], piece: Piece | None, rank: int, size: int) -> tuple[int, ...]:
    """The shape of a rank's share; ``shape`` itself for a tensor that stays whole."""
    if piece is None or piece.dim < 0:
        return shape
    dim = piece.dim
    return (*shape[:dim], share_length(shape[dim], piece.parts, rank, size, piece.units), *shape[dim + 1 :])


def largest_share(shape: tuple[int, ...], piece: Piece | None, size: int) -> tuple[int, ...]:
    """The shape of the largest share of all ranks."""
    if piece is None or piece.dim < 0:
        return shape
    return max((share_shape(shape, piece, rank, size) for rank in range(size)), key=lambda own: own[piece.dim])
