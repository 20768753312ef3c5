"""Runs that leave a model as it is: some forwards write to weights, such as embeddings with ``max_norm``, and some keep
what they compute. A run that finds a kept value does not use the weights that it was computed from.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch

from modular_converter.parallel.trace.holders import holders_of
from modular_converter.parallel.trace.state import SharedState, State


# Objects that can be reached from classes and files, and entries of a tensor among them: a notebook may hold millions.
_MOST_OBJECTS, _LARGEST = 50_000, 1 << 20


@contextlib.contextmanager
def unchanged(model: torch.nn.Module) -> Iterator[tuple[str, ...]]:
    """Give all that changes within the context its value back at its end: weights, attributes and the contents of the
    objects in them, and what copies of the model share.

    Yields:
        what cannot be given back, in words.
    """
    own = State([model])
    shared, numbers = _shared(own), _Numbers(own.tensors)
    lost = [f"what its code keeps in an object of {kind}" for kind in own.unknown]
    lost += [f"variables of its files beyond {_MOST_OBJECTS} objects"] if shared.is_cut else []
    try:
        yield tuple(lost)
    finally:
        own.give_back()
        shared.give_back()
        numbers.give_back()


@contextlib.contextmanager
def same_attributes(model: torch.nn.Module, shared: bool = False) -> Iterator[None]:
    """The same without weights.

    Args:
        shared: whether what copies of the model share gets its values back, too.
    """
    own = State([model])
    outside = _shared(own) if shared else None
    weights = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    numbers = _Numbers(tensor for tensor in own.tensors if id(tensor) not in weights)
    try:
        yield
    finally:
        own.give_back()
        numbers.give_back()
        if outside is not None:
            outside.give_back()


def shared_state(model: torch.nn.Module) -> SharedState:
    """What copies of a model share."""
    return _shared(State([model]))


def _shared(own: State) -> SharedState:
    return SharedState([*holders_of(frozenset(own.classes)), *own.functions], _MOST_OBJECTS, _LARGEST)


class _Numbers:
    """The entries of tensors. Versions do not tell whether they change: code may write through ``tensor.data``."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        with torch.no_grad():
            found = [tensor for tensor in tensors if not tensor.is_meta]
            self._before = [(tensor, tensor.detach(), tensor.detach().clone()) for tensor in found]

    def give_back(self) -> None:
        """Write the entries back into tensors that have changed, which get their storage back, too."""
        with torch.no_grad():
            for tensor, own, was in self._before:
                is_plain = tensor.layout is torch.strided
                if is_plain and (tensor.data_ptr() != own.data_ptr() or tensor.shape != own.shape):
                    tensor.data = own
                if not (is_plain and torch.equal(tensor, was)):
                    tensor.copy_(was)
