"""The part of a sharded axis on each rank: integers only, for tensors, for rows in transfer and for tables.

Each packed block of an axis is a number of equal units (heads, or single entries), and each rank holds neighbouring ones:
50257 rows on 2 ranks are 25129 and 25128. The first ranks hold one more where the number does not divide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd
from typing import Protocol

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.units import Units


class Split(Protocol):
    """How a tensor is cut, such as a ``Piece``: the dimension (-1 for none), its packed blocks and its units."""

    @property
    def dim(self) -> int: ...
    @property
    def parts(self) -> tuple[int, ...]: ...
    @property
    def units(self) -> Units | None: ...


def block_lengths(length: int, parts: Sequence[int]) -> list[int]:
    """The lengths of the packed blocks of an axis, from their relative lengths.

    Raises ``ApplyError`` if the axis does not divide into such parts.
    """
    if not parts:
        return [length]
    common = gcd(*parts)  # the blocks of a share have only the proportion
    unit, rest = divmod(length, sum(parts) // common)
    if rest:
        raise ApplyError(f"an axis of length {length} does not divide into parts {':'.join(map(str, parts))}")
    return [unit * part // common for part in parts]


def stretches(
    length: int, parts: Sequence[int], rank: int, size: int, units: Units | None = None
) -> list[tuple[int, int, int]]:
    """A rank's slice of each block of an axis: ``(start in the whole, start in the share, length)``.

    Args:
        units: those of each block; None for single entries.

    Raises ``ApplyError`` if a block is not made of so many units, has fewer than there are ranks, or blocks of several
    lengths have no common units and do not divide.
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


def is_uneven(splits: Iterable[tuple[int, Split]], size: int) -> bool:
    """Whether some ranks hold more of an axis than others, from the whole lengths of the axes that are cut."""
    return any(
        len(set(share_lengths(length, one.parts, size, one.units))) > 1 for length, one in splits if one.dim >= 0
    )


def share_shape(shape: tuple[int, ...], split: Split | None, rank: int, size: int) -> tuple[int, ...]:
    """The shape of a rank's share; ``shape`` itself for what stays whole."""
    if split is None or split.dim < 0:
        return shape
    dim = split.dim
    return (*shape[:dim], share_length(shape[dim], split.parts, rank, size, split.units), *shape[dim + 1 :])


def largest_share(shape: tuple[int, ...], split: Split | None, size: int) -> tuple[int, ...]:
    """The shape of the largest share of all ranks."""
    if split is None or split.dim < 0:
        return shape
    return max((share_shape(shape, split, rank, size) for rank in range(size)), key=lambda own: own[split.dim])
