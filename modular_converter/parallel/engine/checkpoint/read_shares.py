"""A rank's share of a weight, read from the files."""

from __future__ import annotations

import torch

from modular_converter.parallel.engine.checkpoint.reader import Reader
from modular_converter.parallel.engine.checkpoint.recipes import Recipe
from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.shard.shares import stretches


def read_share(
    reader: Reader, recipe: Recipe, piece: Piece | None, rank: int, size: int, target: torch.Tensor
) -> None:
    """Read a rank's share of a weight into ``target``, which has its shape, a few megabytes at a time.

    A weight that is computed is read whole first.

    Raises ``ApplyError`` if a file cannot be read; it and the key are named.
    """
    if piece is None or piece.dim < 0:
        for first, rows in reader.chunks(recipe, recipe.whole()):
            (target[first : first + len(rows)] if recipe.shape else target).copy_(rows)
        return
    whole = None if recipe.piecewise else reader.whole(recipe)
    dim = piece.dim
    for source, goal, length in stretches(recipe.shape[dim], piece.parts, rank, size, piece.units):
        part = target.narrow(dim, goal, length)
        if whole is not None:
            part.copy_(whole.narrow(dim, source, length))
            continue
        box = (*recipe.whole()[:dim], (source, length), *recipe.whole()[dim + 1 :])
        for first, rows in reader.chunks(recipe, box):
            part[first : first + len(rows)].copy_(rows)
