"""Recipes: how a weight is computed from the tensors in files. Ranks get them, and read the ranges that they need."""

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
        """Whether a part of the tensor needs only parts of the stored tensors."""
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
    """A recipe that is made of one other recipe."""

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
    """The box of a recipe that begins at ``starts``."""

    starts: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Arranged(OfOne):
    """A recipe with its dimensions in another order.

    Attributes:
        dims: for each dimension its number in ``of``, or None for a new dimension of length 1. Dimensions of ``of`` that
            are not named have length 1.
    """

    dims: tuple[int | None, ...]


@dataclass(frozen=True, eq=False)
class Computed(Recipe):
    """The result of any other operation of torch; its inputs are read whole.

    Attributes:
        name: of the operation, such as ``aten::mul.Tensor``.
        number: of the output, for an operation with several outputs; else -1.
    """

    name: str
    args: Any
    kwargs: Any
    number: int = -1

    @property
    def piecewise(self) -> bool:
        return False
