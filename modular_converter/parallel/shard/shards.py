"""Split a tensor over ranks and put it together again: ``unshard(shards) == tensor`` for every layout."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from modular_converter.parallel.errors import ApplyError


def blocks_of(length: int, parts: Sequence[int]) -> list[int]:
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


def shard(tensor: torch.Tensor, dim: int, parts: Sequence[int], rank: int, size: int) -> torch.Tensor:
    """This rank's share: of every packed block its ``rank``-th of ``size`` equal slices.

    Args:
        tensor: whole.
        dim: the dimension to split.
        parts: relative lengths of packed blocks, ``()`` for one.

    Raises:
        ApplyError: a block does not divide by ``size``.
    """
    pieces = []
    for block in tensor.split(blocks_of(tensor.shape[dim], parts), dim):  # type: ignore[no-untyped-call]
        length = block.shape[dim]
        if length % size:
            raise ApplyError(f"a block of length {length} does not divide over {size} ranks")
        pieces.append(block.narrow(dim, rank * (length // size), length // size))
    return torch.cat(pieces, dim).contiguous()


def unshard(pieces: Sequence[torch.Tensor], dim: int, parts: Sequence[int]) -> torch.Tensor:
    """The inverse of ``shard``, from the shares of all ranks in order."""
    blocks = [piece.split(blocks_of(piece.shape[dim], parts), dim) for piece in pieces]  # type: ignore[no-untyped-call]
    return torch.cat([block for group in zip(*blocks) for block in group], dim).contiguous()
