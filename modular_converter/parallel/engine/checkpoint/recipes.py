"""How a weight is computed from the tensors in files: plain records, sent to the ranks, which read the ranges they
need.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


Box = tuple[tuple[int, int], ...]
"""Start and length in each dimension."""


@dataclass(frozen=True, eq=False)
class Recipe:
    """A tensor that has not been read."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def piecewise(self) -> bool:
        """Whether a part of it is made of parts of the stored tensors alone."""
        return True

    def whole(self) -> Box:
        """The box of all entries."""
        return tuple((0, length) for length in self.shape)


@dataclass(frozen=True, eq=False)
class Stored(Recipe):
    """A tensor of a safetensors file."""

    file: str
    key: str


@dataclass(frozen=True, eq=False)
class OfOne(Recipe):
    """Entries of one other recipe."""

    of: Recipe

    @property
    def piecewise(self) -> bool:
        return self.of.piecewise


@dataclass(frozen=True, eq=False)
class Converted(OfOne):
    """Another recipe in another type."""


@dataclass(frozen=True, eq=False)
class Joined(Recipe):
    """Several recipes, one after the other along a dimension."""

    dim: int
    parts: tuple[Recipe, ...]

    @property
    def piecewise(self) -> bool:
        return all(part.piecewise for part in self.parts)


@dataclass(frozen=True, eq=False)
class Excerpt(OfOne):
    """A part of a recipe, which begins at ``starts`` and has this shape."""

    starts: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Arranged(OfOne):
    """A recipe with its dimensions in another order.

    Attributes:
        dims: for each dimension its number in ``of``, None for a new dimension of length 1; omitted dimensions have
            length 1.
    """

    dims: tuple[int | None, ...]


@dataclass(frozen=True, eq=False)
class Computed(Recipe):
    """Any other operation of torch; its inputs are read whole.

    Attributes:
        name: of the operation, such as ``aten::mul.Tensor``.
        number: of the output, for an operation with several; -1 for one.
    """

    name: str
    args: Any
    kwargs: Any
    number: int = -1

    @property
    def piecewise(self) -> bool:
        return False
