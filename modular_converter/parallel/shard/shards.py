"""Split a tensor over ranks and put it together again: ``unshard(shards) == tensor`` for every layout."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from modular_converter.parallel.plans.units import Units
from modular_converter.parallel.shard.shares import block_lengths, stretches


def shard(
    tensor: torch.Tensor, dim: int, parts: Sequence[int], rank: int, size: int, units: Units | None = None
) -> torch.Tensor:
    """This rank's share: the ``rank``-th of ``size`` slices of every packed block.

    Args:
        tensor: whole.
        dim: the dimension to split.
        parts: relative lengths of packed blocks, ``()`` for one block.
        units: see ``stretches``.

    Raises ``ApplyError`` if the dimension does not divide into the parts or units, or they are too few for ``size``
    ranks.
    """
    own = stretches(tensor.shape[dim], parts, rank, size, units)
    return torch.cat([tensor.narrow(dim, start, length) for start, _, length in own], dim).contiguous()


def unshard(pieces: Sequence[torch.Tensor], dim: int, parts: Sequence[int]) -> torch.Tensor:
    """The inverse of ``shard``, from the shares of all ranks in order."""
    blocks = [piece.split(block_lengths(piece.shape[dim], parts), dim) for piece in pieces]  # type: ignore[no-untyped-call]
    return torch.cat([block for group in zip(*blocks) for block in group], dim).contiguous()
