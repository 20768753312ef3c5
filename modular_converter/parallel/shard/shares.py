"""Which part of a sharded axis a rank holds: integers only, for tensors, for rows on their way and for tables."""

from __future__ import annotations

from collections.abc import Sequence

from modular_converter.parallel.errors import ApplyError


def block_lengths(length: int, parts: Sequence[int]) -> list[int]:
    """The lengths of the packed blocks of an axis, from their relative lengths.

    Raises:
        ApplyError: the axis does not divide into such parts.
    """
    if not parts:
        return [length]
    unit, rest = divmod(length, sum(parts))
    if rest:
        raise ApplyError(f"an axis of length {length} does not divide into parts {':'.join(map(str, parts))}")
    return [unit * part for part in parts]


def stretches(length: int, parts: Sequence[int], rank: int, size: int) -> list[tuple[int, int, int]]:
    """A rank's slice of each block of an axis: ``(start in the whole, start in the share, length)``.

    Raises:
        ApplyError: a block does not divide by ``size``.
    """
    found, start, local = [], 0, 0
    for block in block_lengths(length, parts):
        if block % size:
            raise ApplyError(f"a block of length {block} does not divide over {size} ranks")
        part = block // size
        found.append((start + rank * part, local, part))
        start, local = start + block, local + part
    return found


def share_shape(shape: tuple[int, ...], dim: int, size: int) -> tuple[int, ...]:
    """The shape of a rank's share; rounded down where the axis does not divide, and ``shape`` itself for dim -1."""
    return shape if dim < 0 else (*shape[:dim], shape[dim] // size, *shape[dim + 1 :])
