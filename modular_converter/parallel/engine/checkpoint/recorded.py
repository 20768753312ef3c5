"""Tensors without data that record operations as recipes, for the library's own loading code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from modular_converter.parallel.engine.checkpoint.reader import (
    Arranged,
    Computed,
    Converted,
    Excerpt,
    Joined,
    Reader,
    Recipe,
)
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.torch_private import disabled_torch_function, make_wrapper_subclass, pytree


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
        recipes = _recipes(func, args, kwargs, outputs)
        # A write to a view is a write to its base.
        view = any(given.alias_info is not None for given in func._schema.returns)
        writes = args[0].writes if view and isinstance(args[0], RecordedTensor) else None
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


def _recipes(func: Any, args: Any, kwargs: Any, outputs: Any) -> list[Recipe]:
    """The recipe of each output."""
    found = [outputs] if isinstance(outputs, torch.Tensor) else list(outputs)
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


def _stretches(args: Any, kwargs: Any, outputs: list[torch.Tensor]) -> list[Recipe] | None:
    """``split`` in its forms, whose outputs lie one after the other."""
    of, rank = args[0], len(args[0].shape)
    dim = (args[2] if len(args) > 2 else kwargs.get("dim", 0)) % rank
    found: list[Recipe] = []
    start = 0
    for one in outputs:
        starts = tuple(start if n == dim else 0 for n in range(rank))
        found.append(Excerpt(tuple(one.shape), of.dtype, of, starts))
        start += one.shape[dim]
    return found


def _slice(args: Any, kwargs: Any, outputs: list[torch.Tensor]) -> list[Recipe] | None:
    of, given = args[0], [*args[1:], *(0, None, None, 1)[len(args) - 1 :]]
    dim, start = given[:2]
    if given[3] != 1:
        return None
    rank, length = len(of.shape), of.shape[dim]
    begin = start or 0
    begin = max(0, min(length, begin + length if begin < 0 else begin))
    starts = tuple(begin if n == dim % rank else 0 for n in range(rank))
    return [Excerpt(tuple(outputs[0].shape), of.dtype, of, starts)]


def _selected(args: Any, kwargs: Any, outputs: list[torch.Tensor]) -> list[Recipe] | None:
    """``select`` and ``unbind``: an excerpt of length 1, without its dimension."""
    of, rank = args[0], len(args[0].shape)
    dim = (args[1] if len(args) > 1 else 0) % rank
    numbers = range(len(outputs)) if len(args) < 3 else [args[2] % of.shape[dim]]
    found: list[Recipe] = []
    for number, one in zip(numbers, outputs):
        starts = tuple(number if n == dim else 0 for n in range(rank))
        row = Excerpt((*of.shape[:dim], 1, *of.shape[dim + 1 :]), of.dtype, of, starts)
        found.append(Arranged(tuple(one.shape), of.dtype, row, tuple(n for n in range(rank) if n != dim)))
    return found


def _arranged(order: Callable[[int, Any, Recipe], list[int | None]]) -> _Structure:
    def made(args: Any, kwargs: Any, outputs: list[torch.Tensor]) -> list[Recipe] | None:
        of = args[0]
        return [Arranged(tuple(outputs[0].shape), of.dtype, of, tuple(order(len(of.shape), args[1:], of)))]

    return made


def _transposed(rank: int, dims: Any, of: Recipe) -> list[int | None]:
    order: list[int | None] = list(range(rank))
    one, other = (dims[0] % rank, dims[1] % rank) if dims else (0, rank - 1)
    order[one], order[other] = order[other], order[one]
    return order


def _squeezed(rank: int, dims: Any, of: Recipe) -> list[int | None]:
    asked = range(rank) if not dims else [dims[0]] if isinstance(dims[0], int) else dims[0]
    gone = {dim % rank for dim in asked if of.shape[dim] == 1}
    return [dim for dim in range(rank) if dim not in gone]


def _unsqueezed(rank: int, dims: Any, of: Recipe) -> list[int | None]:
    order: list[int | None] = list(range(rank))
    order.insert(dims[0] % (rank + 1), None)
    return order


_STRUCTURE: dict[str, _Structure] = {
    "aten::detach": _same,
    "aten::alias": _same,
    "aten::clone": _same,
    "aten::lift_fresh": _same,
    "aten::_to_copy": _same,
    "aten::view": _same,
    "aten::_unsafe_view": _same,
    "aten::cat": _joined,
    "aten::stack": _stacked,
    "aten::split.Tensor": _stretches,
    "aten::split_with_sizes": _stretches,
    "aten::slice.Tensor": _slice,
    "aten::select.int": _selected,
    "aten::unbind.int": _selected,
    "aten::t": _arranged(_transposed),
    "aten::transpose.int": _arranged(_transposed),
    "aten::permute": _arranged(lambda rank, dims, of: [dim % rank for dim in dims[0]]),
    "aten::squeeze": _arranged(_squeezed),
    "aten::squeeze.dim": _arranged(_squeezed),
    "aten::squeeze.dims": _arranged(_squeezed),
    "aten::unsqueeze": _arranged(_unsqueezed),
}
"""Operations that only move entries: a range of the result is made of ranges of the inputs."""
