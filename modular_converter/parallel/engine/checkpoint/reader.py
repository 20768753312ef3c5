"""Recipes of weights, as computed from tensors in files, and the ranges of bytes that a rank's share of one needs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open

from modular_converter.parallel.errors import ApplyError, one_line
from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.shard.shares import stretches
from modular_converter.parallel.torch_private import pytree


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


# The bytes of one read, for weights that can be read in parts.
CHUNK_BYTES = 32 << 20


class Reader:
    """The open files of one load.

    Attributes:
        bytes: read from the files so far.
    """

    def __init__(self) -> None:
        self.files: dict[str, Any] = {}
        self.bytes = 0
        self.stack = contextlib.ExitStack()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *exception: object) -> None:
        self.files.clear()
        self.stack.close()

    def whole(self, recipe: Recipe) -> torch.Tensor:
        """The whole tensor of a recipe."""
        return self.read(recipe, recipe.whole())

    def chunks(self, recipe: Recipe, box: Box) -> Iterator[tuple[int, torch.Tensor]]:
        """(First row in the box, rows) of a box, about ``CHUNK_BYTES`` at a time; all rows at once of a computed recipe."""
        if not recipe.shape or not recipe.piecewise:
            yield 0, self.read(recipe, box)
            return
        row = recipe.dtype.itemsize
        for _, length in box[1:]:
            row *= length
        step = max(1, CHUNK_BYTES // max(1, row))
        first, rows = box[0]
        for done in range(0, rows, step):
            yield done, self.read(recipe, ((first + done, min(step, rows - done)), *box[1:]))

    def equal(self, one: Recipe, other: Recipe) -> bool:
        """Whether two recipes have the same entries."""
        if one.shape != other.shape:
            return False
        pairs = zip(self.chunks(one, one.whole()), self.chunks(other, other.whole()))
        return all(torch.equal(part, beside) for (_, part), (_, beside) in pairs)

    def read(self, recipe: Recipe, box: Box) -> torch.Tensor:
        """The entries of a box, on the CPU. Raises ``ApplyError`` if a file cannot be read; it names file and key."""
        if isinstance(recipe, Stored):
            return self._stored(recipe, box)
        if isinstance(recipe, Converted):
            return self.read(recipe.of, box).to(recipe.dtype)
        if isinstance(recipe, Joined):
            return self._joined(recipe, box)
        if isinstance(recipe, Excerpt):
            inner = tuple((first + start, length) for (first, length), start in zip(box, recipe.starts))
            return self.read(recipe.of, inner)
        if isinstance(recipe, Arranged):
            return self._arranged(recipe, box)
        assert isinstance(recipe, Computed)
        made = self._computed(recipe)
        for dim, (first, length) in enumerate(box):
            made = made.narrow(dim, first, length)
        return made

    def _stored(self, recipe: Stored, box: Box) -> torch.Tensor:
        try:
            if recipe.file not in self.files:
                opened = safe_open(recipe.file, framework="pt", device="cpu")
                self.files[recipe.file] = self.stack.enter_context(opened)
            file = self.files[recipe.file]
            if recipe.shape:
                found: torch.Tensor = file.get_slice(recipe.key)[tuple(slice(a, a + n) for a, n in box)]
            else:
                found = file.get_tensor(recipe.key)
        except Exception as error:  # of safetensors, or of the system
            raise ApplyError(f"{recipe.file}: {recipe.key} cannot be read: {one_line(error)}") from error
        self.bytes += found.numel() * found.element_size()
        return found

    def _joined(self, recipe: Joined, box: Box) -> torch.Tensor:
        first, length = box[recipe.dim]
        found: list[torch.Tensor] = []
        start = 0
        for part in recipe.parts:
            own = part.shape[recipe.dim]
            low, high = max(first, start), min(first + length, start + own)
            if low < high or not length and not found:
                inner = (low - start, max(0, high - low))
                found.append(self.read(part, (*box[: recipe.dim], inner, *box[recipe.dim + 1 :])))
            start += own
        return found[0] if len(found) == 1 else torch.cat(found, recipe.dim)

    def _arranged(self, recipe: Arranged, box: Box) -> torch.Tensor:
        inner = [(0, 1)] * len(recipe.of.shape)
        for dim, place in zip(recipe.dims, box):
            if dim is not None:
                inner[dim] = place
        found = self.read(recipe.of, tuple(inner))
        order = [dim for dim in recipe.dims if dim is not None]
        gone = [dim for dim in range(len(inner)) if dim not in order]
        return found.permute(*order, *gone).reshape([length for _, length in box])

    def _computed(self, recipe: Computed) -> torch.Tensor:
        space, _, overload = recipe.name.partition(".")
        space, _, name = space.partition("::")
        # Recorded tensors have no strides: a recorded view may need a copy here.
        name, overload = ("reshape", "") if name in ("view", "_unsafe_view") else (name, overload)
        function = getattr(getattr(getattr(torch.ops, space), name), overload or "default")
        given = (recipe.args, recipe.kwargs)
        args, kwargs = pytree.tree_map(lambda value: self.whole(value) if isinstance(value, Recipe) else value, given)
        made = function(*args, **kwargs)
        found: torch.Tensor = made if recipe.number < 0 else made[recipe.number]
        return found


def read_share(
    reader: Reader, recipe: Recipe, piece: Piece | None, rank: int, size: int, target: torch.Tensor
) -> None:
    """Read a rank's share of a weight into ``target``, which has the share's shape, a few megabytes at a time.

    A computed weight is read whole first. Raises ``ApplyError`` as ``Reader.read`` does.
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
