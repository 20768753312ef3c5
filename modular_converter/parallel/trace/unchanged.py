"""Runs that leave a model unchanged: some forwards write to weights, such as embeddings with ``max_norm``, and some keep
computed values, with which a later run does not use the weights behind them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

import torch

from modular_converter.parallel.trace.holders import holders_of
from modular_converter.parallel.trace.state import SharedState, State


# The most objects that are followed from classes and files (a notebook may hold millions), and entries of their tensors.
_MOST_OBJECTS, _LARGEST = 50_000, 1 << 20


@contextlib.contextmanager
def unchanged(model: torch.nn.Module) -> Iterator[tuple[str, ...]]:
    """A context that restores a model at its end: weights, attributes with the objects in them, and shared state.

    Yields:
        The state that cannot be restored, in words.
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
    """The same without weights, and with shared state only if ``shared``."""
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
    """The state that copies of a model share."""
    return _shared(State([model]))


def _shared(own: State) -> SharedState:
    return SharedState([*holders_of(frozenset(own.classes)), *own.functions], _MOST_OBJECTS, _LARGEST)


class _Numbers:
    """The entries of tensors. Their versions do not show all writes: code may write through ``tensor.data``."""

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        with torch.no_grad():
            found = [tensor for tensor in tensors if not tensor.is_meta]
            self._before = [(tensor, tensor.detach(), tensor.detach().clone()) for tensor in found]

    def give_back(self) -> None:
        """Restore the entries of changed tensors, and their storage."""
        with torch.no_grad():
            for tensor, own, was in self._before:
                is_plain = tensor.layout is torch.strided
                if is_plain and (tensor.data_ptr() != own.data_ptr() or tensor.shape != own.shape):
                    tensor.data = own
                if not (is_plain and torch.equal(tensor, was)):
                    tensor.copy_(was)
