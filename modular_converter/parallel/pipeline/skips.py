"""Tensors that bypass the layers: the results on which the values around the layers depend."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from modular_converter.parallel.solve.operators import OPERATORS
from modular_converter.parallel.torch_private import TorchDispatchMode, pytree


# The methods by which Python reads the values of a tensor.
_QUESTIONS = ("__bool__", "__contains__", "__float__", "__index__", "__int__", "equal", "item", "nonzero", "tolist")


class Spot(NamedTuple):
    """A tensor in a result of a module: the index of the call in the run, and of the leaf in the result."""

    path: str
    call: int
    leaf: int


class ResultSources(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows results of modules through the operations outside of these modules, in one run.

    A storage counts as a whole: a write to a view is a write to all tensors in its memory.

    Attributes:
        read: the results whose values the code reads, so that the operations depend on them.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.read: frozenset[Spot] = frozenset()
        self._of: dict[int, frozenset[Spot]] = {}
        self._kept: list[Any] = []  # alive, so that the numbers of storages are unique
        self._inside = 0

    def enter(self) -> None:
        """A module starts; only its result counts."""
        self._inside += 1

    def leave(self, path: str, call: int, result: Any) -> None:
        """The module has returned: it is the only source of its result's tensors from now on."""
        self._inside -= 1
        for leaf, value in enumerate(pytree.tree_leaves(result)):
            if isinstance(value, torch.Tensor):
                self._set(value, frozenset({Spot(path, call, leaf)}))

    def of(self, values: Any) -> frozenset[Spot]:
        """The results on which tensors in a structure depend."""
        tensors = (one for one in pytree.tree_leaves(values) if isinstance(one, torch.Tensor))
        return frozenset().union(*(self._of.get(_number(one), frozenset()) for one in tensors))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        known = OPERATORS.get(func.overloadpacket.__name__)
        if not self._inside and not (known is not None and known.traits.shape_only):
            entering = self.of((args, kwargs))
            if entering:
                written = [one for one, said in zip(args, func._schema.arguments) if _is_written(said)]
                for value in pytree.tree_leaves((result, written)):
                    if isinstance(value, torch.Tensor):
                        self._set(value, self.of(value) | entering)
        return result

    def note_read(self, values: Any) -> None:
        """The model's code reads the values of tensors."""
        if not self._inside:
            self.read |= self.of(values)

    def _set(self, value: torch.Tensor, found: frozenset[Spot]) -> None:
        self._kept.append(value)
        self._of[_number(value)] = found


class Questions(TorchFunctionMode):
    """Reports reads of values by the model's code to `ResultSources`; entered last, so that it sees them first."""

    def __init__(self, sources: ResultSources) -> None:
        super().__init__()
        self._sources = sources

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _QUESTIONS:
            self._sources.note_read(args)
        return func(*args, **(kwargs or {}))


def _number(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write
