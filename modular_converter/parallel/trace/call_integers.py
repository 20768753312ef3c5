"""The integers of a call of torch: of its arguments, or of the shape that it takes from another tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from modular_converter.parallel.trace.graph import Source
from modular_converter.parallel.trace.integers import source_of


ShapeOf = Callable[[Any], Sequence[int]]
READS = frozenset({"tolist", "numpy", "__array__", "__dlpack__"})
"""Functions that give the values of a tensor to the program without an operation."""


def stated_integers(
    name: str, args: Sequence[Any], kwargs: Mapping[str, Any], shape_of: ShapeOf
) -> tuple[str, tuple[Source, ...]]:
    """The equivalent function of a call, and the sources of its integers in the order of this function's arguments.

    Args:
        name: the function that was called.
        args, kwargs: its arguments.
        shape_of: gives the shape of a tensor, with the sources of its lengths.
    """
    if name in _TAKEN_OVER:
        return _TAKEN_OVER[name], tuple(_integers(shape_of(args[1] if len(args) > 1 else kwargs["other"])))
    if name in ("broadcast_tensors", "meshgrid"):
        given = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
        shapes = [shape_of(tensor) for tensor in given]
        return "expand", tuple(_integers(_crossed(shapes, kwargs) if name == "meshgrid" else _broadcast(shapes)))
    if name in _ORDERED:
        return name, tuple(_integers(_ORDERED[name](*args, **kwargs)))
    return name, (*_integers(args), *_integers(tuple(kwargs.values())))


# Function that takes a shape from its second tensor -> the equivalent function of integers.
_TAKEN_OVER = {"view_as": "view", "reshape_as": "reshape", "expand_as": "expand"}
# Function whose arguments are often in another order -> the integers that matter.
_ORDERED: dict[str, Callable[..., Any]] = {
    "narrow": lambda input, dim, start, length: (start if isinstance(start, int) else 0, length),
    "split_with_sizes": lambda input, split_sizes, dim=0: split_sizes,
    "full": lambda size, fill_value, **options: size,
    "new_full": lambda input, size, fill_value, **options: size,
}


def _broadcast(shapes: Sequence[Sequence[int]]) -> list[int]:
    rank = max(map(len, shapes))
    padded = [[1] * (rank - len(shape)) + [*shape] for shape in shapes]
    return [next((length for length in lengths if length != 1), 1) for lengths in zip(*padded)]


def _crossed(shapes: Sequence[Sequence[int]], options: Mapping[str, Any]) -> list[int]:
    lengths = [shape[0] if shape else 1 for shape in shapes]
    return [*lengths[1::-1], *lengths[2:]] if options.get("indexing") == "xy" else lengths


def _integers(value: Any) -> list[Source]:
    if isinstance(value, bool):
        return []
    if isinstance(value, int):
        return [source_of(value)]
    if isinstance(value, (list, tuple)):
        return [found for item in value for found in _integers(item)]
    if isinstance(value, slice):
        return _integers((value.start, value.stop, value.step))
    return []
