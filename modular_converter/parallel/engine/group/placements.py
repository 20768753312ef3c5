"""The placement of a DTensor that describes a share exactly, if torch has one."""

from __future__ import annotations

from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.shard.shares import block_lengths, share_lengths
from modular_converter.parallel.torch_private import StridedShard


def placement_of(piece: Piece, size: int, alone: bool) -> Placement | None:
    """The placement over one dimension of a mesh; None if torch has none for the share.

    torch cuts into pieces of equal length, and the last pieces are shorter or empty. Packed blocks have a strided
    placement; torch 2.13 gathers it wrongly if a data dimension cuts the first dimension, too.

    Args:
        size: of the group.
        alone: whether the layout has no data dimension.
    """
    if piece.dim < 0:
        return Replicate()
    lengths = share_lengths(piece.length, piece.parts, size, piece.units)
    if piece.units is not None and piece.units.has_copies(size):
        return None
    blocks = block_lengths(piece.length, piece.parts)
    if len(blocks) == 1:
        return Shard(piece.dim) if lengths == chunk_lengths(piece.length, size) else None
    even = len(set(blocks)) == 1 and len(set(lengths)) == 1
    return StridedShard(piece.dim, split_factor=len(blocks)) if even and (alone or piece.dim > 0) else None


def chunk_lengths(length: int, size: int) -> tuple[int, ...]:
    """The lengths of the pieces into which torch cuts a dimension."""
    each = -(-length // size)
    return tuple(max(0, min(each, length - rank * each)) for rank in range(size))
