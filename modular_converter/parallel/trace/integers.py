"""Integers that remember their source: module attributes, configuration fields, tensor shapes; also those in calls.

A subclass of ``int`` passes through all code for integers, and through arithmetic. So a size in a ``view`` can be traced
back to the attribute that must shrink with the shard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from modular_converter.parallel.trace.graph import Comparison, Source


class SourcedInt(int):
    """An integer with its ``Source``; arithmetic keeps the tree."""

    source: Source

    def __new__(cls, value: int, source: Source) -> SourcedInt:
        made = super().__new__(cls, value)
        made.source = source
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return (int, (int(self),))

    def __deepcopy__(self, memo: dict[int, Any]) -> int:
        return int(self)

    def __index__(self) -> int:
        return int.__index__(self)


def source_of(value: int) -> Source:
    """The source of any integer; a plain integer is a constant."""
    return value.source if isinstance(value, SourcedInt) else Source("const", int(value))


def _binary(name: str, plain: Callable[[Any, Any], Any], swap: bool) -> Callable[[SourcedInt, Any], Any]:
    def method(self: SourcedInt, other: Any) -> Any:
        result = plain(self, other)
        if type(result) is not int or not isinstance(other, int) or isinstance(other, bool):
            return result
        left, right = source_of(self), source_of(other)
        pair = (right, left) if swap else (left, right)
        return SourcedInt(result, Source(name, result, args=pair))

    return method


for _name in ("add", "sub", "mul", "floordiv", "mod"):
    for _swap, _prefix in ((False, "__"), (True, "__r")):
        _method = f"{_prefix}{_name}__"
        setattr(SourcedInt, _method, _binary(_name, getattr(int, _method), _swap))


def _same(self: SourcedInt, *digits: Any) -> SourcedInt:
    """``round``, ``math.floor`` and ``math.ceil`` of an integer."""
    return self


SourcedInt.__divmod__ = lambda self, other: (self // other, self % other)  # type: ignore[method-assign]
SourcedInt.__rdivmod__ = lambda self, other: (other // self, other % self)  # type: ignore[method-assign]
SourcedInt.__neg__ = lambda self: 0 - self  # type: ignore[method-assign]
for _name in ("pos", "round", "floor", "ceil", "trunc"):
    setattr(SourcedInt, f"__{_name}__", _same)


Noted = Callable[[Comparison], None]
_COMPARED: ContextVar[Noted | None] = ContextVar("compared", default=None)


@contextmanager
def comparisons(note: Noted) -> Iterator[None]:
    """A context that notes the comparisons of integers that remember their source, those in ``min`` and ``sorted`` too."""
    token = _COMPARED.set(note)
    try:
        yield
    finally:
        _COMPARED.reset(token)


def _note(operator: str, left: SourcedInt, right: int) -> None:
    note = _COMPARED.get()
    if note is not None:
        note(Comparison(operator, left.source, source_of(right)))


def _comparing(name: str, plain: Callable[[Any, Any], Any]) -> Callable[[SourcedInt, Any], Any]:
    def method(self: SourcedInt, other: Any) -> Any:
        if isinstance(other, int) and not isinstance(other, bool):
            _note(name, self, other)
        return plain(self, other)

    return method


for _name in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
    setattr(SourcedInt, _name, _comparing(_name.strip("_"), getattr(int, _name)))


def _truth(self: SourcedInt) -> bool:
    """``if length % 8:`` compares with zero."""
    _note("ne", self, 0)
    return int.__bool__(self)


SourcedInt.__bool__ = _truth  # type: ignore[method-assign, assignment]


def _halve(self: SourcedInt, other: Any) -> Any:
    """Give a plain float: ``int(a / b)`` is a common form of ``a // b``, whose source is lost on purpose."""
    return int.__truediv__(self, other)


SourcedInt.__truediv__ = _halve  # type: ignore[method-assign, assignment]


def sourced_shape(
    func: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], number: Callable[[Any], int]
) -> Any:
    """The result of a call that reads a shape, with integers that remember the tensor and the dimension.

    Args:
        func: ``Tensor.size``, or the getter of ``Tensor.shape``.
        number: gives the number of a tensor.
    """
    result, tensor = func(*args, **kwargs), args[0]
    own = number(tensor)

    def entry(dim: int, length: int) -> SourcedInt:
        return SourcedInt(int(length), Source("shape", int(length), tensor=own, dim=dim))

    if isinstance(result, int):
        dim = int(args[1] if len(args) > 1 else kwargs["dim"])
        return entry(dim % max(tensor.dim(), 1), result)
    return torch.Size([entry(dim, length) for dim, length in enumerate(result)])


_SHAPE_GETTER = torch.Tensor.shape.__get__  # type: ignore[attr-defined]


def reads_shape(func: Any, name: str) -> bool:
    """Whether a function of torch gives the shape of a tensor, or one of its lengths."""
    return func is _SHAPE_GETTER or (name == "__get__" and func == _SHAPE_GETTER) or name == "size"


@contextmanager
def sourced_attributes(model: Any, least: int = 2) -> Iterator[None]:
    """A context in which the integer attributes of all modules and of their configurations know their owner.

    Args:
        least: smaller integers stay plain; 0 and 1 are mostly no sizes.
    """
    undo: list[tuple[dict[str, Any], str, Any]] = []
    try:
        for path, module in model.named_modules():
            _replace(vars(module), path, "", undo, least)
            for field, value in list(vars(module).items()):
                if hasattr(value, "model_type") and hasattr(value, "to_dict"):
                    vars(module)[field] = _configuration_view(value, path, field, least)
                    undo.append((vars(module), field, value))
        yield
    finally:
        for scope, name, value in reversed(undo):
            scope[name] = value


def _replace(
    scope: dict[str, Any], path: str, prefix: str, undo: list[tuple[dict[str, Any], str, Any]], least: int
) -> None:
    for name, value in list(scope.items()):
        made = _sourced(value, path, prefix + name, least)
        if made is not value:
            undo.append((scope, name, value))
            scope[name] = made


def _sourced(value: Any, path: str, name: str, least: int) -> Any:
    if type(value) is int and value >= least:
        return SourcedInt(value, Source("attr", value, owner=path, name=name))
    if type(value) in (list, tuple) and value and all(type(item) is int for item in value):
        items = [
            SourcedInt(item, Source("attr", item, owner=path, name=f"{name}[{i}]")) if item >= least else item
            for i, item in enumerate(value)
        ]
        return type(value)(items)
    return value


def _configuration_view(config: Any, path: str, field: str, least: int) -> Any:
    """A shallow copy whose integers have the source ``<module>:<field>.<name>``; the shared original is unchanged."""
    copy = object.__new__(type(config))
    scope = dict(vars(config))
    _replace(scope, path, field + ".", [], least)
    copy.__dict__.update(scope)
    return copy


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
    "embedding": lambda *given, **options: (),  # the row without a gradient changes no shape and no number
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
