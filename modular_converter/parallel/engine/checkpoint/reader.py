"""Recipes of weights, as computed from tensors in files, and the ranges of bytes that a rank's share of one needs.

Tensors without data record the operations of the library's own loading code as such recipes.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from safetensors import safe_open

from modular_converter.parallel.errors import ApplyError, one_line
from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.shard.shares import stretches
from modular_converter.parallel.torch_private import disabled_torch_function, make_wrapper_subclass, pytree


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


class RecordedTensor(torch.Tensor):
    """A tensor that appears to be on the CPU and has no data.

    Attributes:
        recipe: of its data.
        writes: names of operations that would have written to it or to its base.
    """

    recipe: Recipe
    writes: list[str]
    __torch_function__: Any = disabled_torch_function

    @staticmethod
    def __new__(cls, recipe: Recipe, writes: list[str] | None = None) -> RecordedTensor:
        make: Any = make_wrapper_subclass
        made: RecordedTensor = make(cls, recipe.shape, dtype=recipe.dtype, device="cpu")
        made.recipe, made.writes = recipe, [] if writes is None else writes
        return made

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"RecordedTensor({tuple(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if func._schema.is_mutable:
            return _written(func, args)
        if not any("Tensor" in str(given.type) for given in func._schema.returns):
            return _value(func, args, kwargs)
        outputs = func(
            *pytree.tree_map(_bare, args), **pytree.tree_map(_bare, {k: v for k, v in kwargs.items() if k != "device"})
        )
        view = isinstance(args[0], RecordedTensor) and any(one.alias_info is not None for one in func._schema.returns)
        recipes = _recipes(func, args, kwargs, outputs, view)
        writes = args[0].writes if view else None  # a write to a view is a write to its base
        if isinstance(outputs, torch.Tensor):
            return cls(recipes[0], writes)
        return type(outputs)(cls(recipe, writes) for recipe in recipes)


def _bare(value: Any) -> Any:
    return torch.empty(value.shape, dtype=value.dtype, device="meta") if isinstance(value, torch.Tensor) else value


def _plain(value: Any) -> Any:
    return value.recipe if isinstance(value, RecordedTensor) else value


def _written(func: Any, args: Any) -> Any:
    """Note a write. Raises ``ApplyError`` for a write of recorded values into an ordinary tensor."""
    target = args[0]
    if not isinstance(target, RecordedTensor):
        raise ApplyError(f"{func.name()} copies a weight that has not been read")
    target.writes.append(func.name())
    return target


def _value(func: Any, args: Any, kwargs: Any) -> Any:
    """A number or boolean that depends on data: the tensors are read."""
    with Reader() as reader:
        if func is torch.ops.aten.equal.default and all(isinstance(one, RecordedTensor) for one in args):
            return reader.equal(args[0].recipe, args[1].recipe)
        read = [reader.whole(one.recipe) if isinstance(one, RecordedTensor) else one for one in args]
        return func(*read, **kwargs)


def _recipes(func: Any, args: Any, kwargs: Any, outputs: Any, view: bool) -> list[Recipe]:
    """The recipe of each output; those of a view lie in the memory of its first argument."""
    found = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
    parts = [_view(args[0].recipe, one) if view else None for one in found]
    if None not in parts:
        return [part for part in parts if part is not None]
    known = _STRUCTURE.get(func.name())
    recorded = all(
        isinstance(one, RecordedTensor) for one in pytree.tree_leaves(args) if isinstance(one, torch.Tensor)
    )
    if known is not None and recorded:
        made = known(pytree.tree_map(_plain, args), kwargs, found)
        if made is not None:
            return made
    plain_args, plain_kwargs = pytree.tree_map(_plain, args), pytree.tree_map(_plain, kwargs)
    numbers = range(len(found)) if not isinstance(outputs, torch.Tensor) else (-1,)
    return [
        Computed(tuple(one.shape), one.dtype, func.name(), plain_args, plain_kwargs, number)
        for one, number in zip(found, numbers)
    ]


_Structure = Callable[[Any, Any, list[torch.Tensor]], "list[Recipe] | None"]


def _same(args: Any, kwargs: Any, outputs: list[torch.Tensor]) -> list[Recipe] | None:
    of, made = args[0], outputs[0]
    if tuple(made.shape) != of.shape:
        return None
    return [of if made.dtype == of.dtype else Converted(of.shape, made.dtype, of)]


def _joined(args: Any, kwargs: Any, outputs: list[torch.Tensor]) -> list[Recipe] | None:
    parts, dim = args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0)
    made = outputs[0]
    if any(part.dtype != made.dtype or len(part.shape) != made.dim() for part in parts):
        return None
    return [Joined(tuple(made.shape), made.dtype, dim % made.dim(), tuple(parts))]


def _stacked(args: Any, kwargs: Any, outputs: list[torch.Tensor]) -> list[Recipe] | None:
    made = outputs[0]
    dim = (args[1] if len(args) > 1 else kwargs.get("dim", 0)) % made.dim()
    if any(part.dtype != made.dtype for part in args[0]):
        return None
    parts = []
    for part in args[0]:
        dims: list[int | None] = list(range(len(part.shape)))
        dims.insert(dim, None)
        parts.append(Arranged((*part.shape[:dim], 1, *part.shape[dim:]), part.dtype, part, tuple(dims)))
    return [Joined(tuple(made.shape), made.dtype, dim, tuple(parts))]


def _view(of: Recipe, made: torch.Tensor) -> Recipe | None:
    """What a view takes of a contiguous tensor, by its strides; None if that is more than a box with its dimensions in order."""
    if made.dtype != of.dtype or made.is_conj() or made.is_neg() or 0 in of.shape:
        return None
    strides = torch.empty(of.shape, device="meta").stride()
    places = {stride: dim for dim, stride in enumerate(strides) if of.shape[dim] > 1}
    dims = [None if length == 1 else places.get(stride) for length, stride in zip(made.shape, made.stride())]
    lengths = {dim: length for dim, length in zip(dims, made.shape) if length != 1}
    shape = tuple(lengths.get(dim, 1) for dim in range(len(strides)))
    starts, rest = [], made.storage_offset()
    for stride in strides:
        starts.append(rest // stride)
        rest %= stride
    inside = all(start + length <= end for start, length, end in zip(starts, shape, of.shape))
    if not inside or None in lengths or math.prod(shape) != made.numel():
        return None
    part = of if shape == of.shape else Excerpt(shape, of.dtype, of, tuple(starts))
    in_order = shape == tuple(made.shape) and all(dim in (None, place) for place, dim in enumerate(dims))
    return part if in_order else Arranged(tuple(made.shape), of.dtype, part, tuple(dims))


_STRUCTURE: dict[str, _Structure] = {
    "aten::clone": _same,
    "aten::_to_copy": _same,
    "aten::_unsafe_view": _same,
    "aten::cat": _joined,
    "aten::stack": _stacked,
}
"""Operations that only move entries, beside views: a range of the result is made of ranges of the inputs."""
