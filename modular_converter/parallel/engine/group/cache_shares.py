"""Key/value caches between calls: their tensors are of a process's own heads, and say so to code that would choose among heads.

The class of such a tensor looks at each operation. One that treats each entry alone runs, and one along other dimensions
than that of the heads (a prompt that is cut off, chosen sequences). Any other, whose result would be that of these heads, is
an error. In calls of the model they are plain.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from modular_converter.parallel.engine.base.caches import caches_in
from modular_converter.parallel.engine.group.same_calls import refused_here
from modular_converter.parallel.engine.group.share_tensors import (
    OF_SHAPE,
    marked_classes,
    treats_each_entry,
    unmark,
    unmarked,
)
from modular_converter.parallel.errors import MAKE_WHOLE
from modular_converter.parallel.shard.forwards import innermost
from modular_converter.parallel.trace.record import tensors_in


_HEADS = 1
"""The dimension: (batch, heads, length, width)."""
_ITEMS = (torch.Tensor.__getitem__, torch.Tensor.__setitem__)


class CacheShare:
    """The part of the class that looks at operations."""

    __slots__ = ()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        shares = tensors_in([*args, *(kwargs or {}).values()], CacheShare)
        if _in_a_part():
            for one in shares:
                unmark(one)
            return func(*args, **(kwargs or {}))
        with unmarked(shares):
            if func not in OF_SHAPE and not treats_each_entry(func) and not _leaves_heads(func, args, kwargs or {}):
                raise refused_here(
                    f"{func.__name__} of a key/value cache: processes share out its heads, and each would take its own for all: "
                    "code outside of the model may choose sequences and positions and change all entries alike; to choose heads, "
                    f"change the model's own attention, or {MAKE_WHOLE}"
                )
            found = func(*args, **(kwargs or {}))
        for one in found if isinstance(found, (list, tuple)) else [found]:
            if type(one) is torch.Tensor and one.dim() > _HEADS:
                one.__class__ = _MARKED
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        with unmarked([self]):
            return self.__reduce_ex__(protocol)


def _in_a_part() -> bool:
    """Whether code of a part of a model, which was called by itself, calls the caller."""
    around = innermost()
    return around is not None and not any("_applied" in vars(one) for one in around.modules())


_MARKED = marked_classes(CacheShare, torch.Tensor)[torch.Tensor]


def _leaves_heads(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether an operation acts along other dimensions than that of the heads, which the result has in the same place."""
    if func in _ITEMS:
        index = args[1] if isinstance(args[1], tuple) else (args[1],)
        first, heads = (*_without_dots(index, args[0].dim()), slice(None))[:2]
        keeps_rows = isinstance(first, (slice, list)) or isinstance(first, torch.Tensor) and first.dim() == 1
        return keeps_rows and isinstance(heads, slice) and heads == slice(None)
    place = _place_of_dim(func.__name__)
    dim = kwargs.get("dim", args[place] if place is not None and place < len(args) else None)
    tensor = args[0][0] if isinstance(args[0], (list, tuple)) else args[0]
    return (
        isinstance(dim, int)
        and dim % tensor.dim() != _HEADS
        and (dim % tensor.dim() > _HEADS or func.__name__ in _OF_ROWS)
    )


_OF_ROWS = (
    "index_select",
    "repeat_interleave",
    "cat",
    "concat",
    "narrow",
    "split",
    "chunk",
    "index_copy_",
    "index_fill_",
)
"""Operations whose results have as many dimensions as their tensors."""


def _without_dots(index: tuple[Any, ...], count: int) -> tuple[Any, ...]:
    number = next((n for n, one in enumerate(index) if one is Ellipsis), None)
    if number is None:
        return (*index, slice(None), slice(None))
    return (*index[:number], *[slice(None)] * (count - len(index) + 1), *index[number + 1 :])


@functools.lru_cache(maxsize=128)
def _place_of_dim(name: str) -> int | None:
    """The number of the argument ``dim`` of an operation."""
    packet = getattr(torch.ops.aten, name, None)
    forms = [] if packet is None else [getattr(packet, form)._schema.arguments for form in packet.overloads()]
    return next((n for form in forms for n, one in enumerate(form) if one.name == "dim"), None)


class CacheShares:
    """The caches of a model's calls.

    A tensor with as many heads as the whole model is whole.
    """

    def __init__(self, model: Any) -> None:
        config: Any = getattr(model, "config", None)
        inner: Any = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
        counts = (getattr(inner, name, None) for name in ("num_key_value_heads", "num_attention_heads"))
        self.alike = set[type[Any]]()  # the classes of caches all of whose tensors were shares
        self.whole = next((one for one in counts if one is not None), None)

    def hide(self, given: Any) -> list[Any]:
        """At a call: its caches, whose tensors are plain in it."""
        found = caches_in(given)
        for cache in found:
            for one in _tensors_of(cache, _MARKED):
                one.__class__ = torch.Tensor
        return found

    def show(self, result: Any, given: list[Any]) -> Any:
        """The result of a call, in which tensors of caches say that they are shares; those of the caller's caches do, too."""
        for cache in {id(one): one for one in (*given, *caches_in(result))}.values():
            found = _tensors_of(cache, torch.Tensor)
            if type(cache) not in self.alike:
                count, whole = len(found), self.whole
                found = [one for one in found if one.dim() == 4 and one.size(_HEADS) != whole]
                if len(found) == count > 0:
                    self.alike.add(type(cache))
            for one in found:
                one.__class__ = _MARKED
        return result


_SIMPLE = frozenset((bool, int, float, str, torch.dtype, torch.device, type(None)))


def _tensors_of(cache: Any, kind: type[Any]) -> list[Any]:
    """The tensors of one class in a cache; each token looks at them twice."""
    found, parts, simple = list[Any](), [cache], _SIMPLE
    for part in parts:
        for value in part.__dict__.values():
            of = type(value)
            if of is kind:
                found.append(value)
            elif of not in simple:
                if of is list:
                    parts += [one for one in value if hasattr(one, "__dict__")]
                elif "Cache" in of.__name__:
                    parts.append(value)
    return found
