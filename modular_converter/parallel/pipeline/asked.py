"""Tensors that bypass layers: hidden states of all layers in the output, features that are joined after the layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from modular_converter.parallel.pipeline.skips import Spot
from modular_converter.parallel.torch_private import pytree


@dataclass(frozen=True)
class ModuleResult:
    """The result of one call of a module.

    Attributes:
        call: its index among the module's calls in the run.
        versions: of ``value`` at the end of the call (``versions_of``).
    """

    path: str
    call: int
    value: Any
    versions: tuple[int, ...] = ()


@dataclass(frozen=True)
class AskedTensor:
    """A tensor that a later stage needs beside the inputs of its first layer.

    Attributes:
        place: number of the layer that makes it; -1 for parts before the layers.
        until: number of the last layer that needs it; the number of layers for parts after them, and for the output.
        spots: its places in results of modules, first of the module that makes it.
        written: whether the model writes to it in place afterwards.
    """

    place: int
    until: int
    spots: tuple[Spot, ...]
    written: bool = False

    def crosses(self, layer: int) -> bool:
        """Whether a stage that begins at a layer receives it."""
        return self.place < layer <= self.until


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors in a structure, in order."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def same_leaves(value: Any) -> Any:
    """The same tensors in new containers, since a model's own code may write to the containers."""
    return pytree.tree_map(lambda leaf: leaf, value)


def asked_tensors(
    output: Any, results: Sequence[ModuleResult], needs: Mapping[Spot, int], places: Mapping[str, int], layers: int
) -> tuple[AskedTensor, ...]:
    """The tensors that bypass layers, in the order in which they were computed.

    Args:
        output: of the model, if the output itself must be complete: modules within layers may return its tensors.
        results: of all modules in one run, in the order in which the calls ended.
        needs: a result with later uses -> the last layer that needs it.
        places: path of a module -> its place, as in ``AskedTensor``.
        layers: the number of layers.
    """
    last = max((number for number, one in enumerate(results) if places.get(one.path, -1) >= 0), default=-1)
    wanted = {id(tensor): layers for tensor in tensors_of(output)}
    seen = [(one, pytree.tree_leaves(one.value)) for one in results[: last + 1] if one.path in places]
    for one, leaves in seen:
        for leaf, tensor in enumerate(leaves):
            until = needs.get(Spot(one.path, one.call, leaf))
            if until is not None:
                wanted[id(tensor)] = max(until, wanted.get(id(tensor), until))
    found: dict[int, AskedTensor] = {}
    for one, leaves in seen:
        for leaf, tensor in enumerate(leaves):
            if isinstance(tensor, torch.Tensor) and id(tensor) in wanted:
                old = found.get(id(tensor)) or AskedTensor(places[one.path], wanted[id(tensor)], ())
                written = old.written or writes_to(tensor) != one.versions[leaf]
                found[id(tensor)] = replace(old, spots=(*old.spots, Spot(one.path, one.call, leaf)), written=written)
    crossing = (one for one in found.values() if any(map(one.crosses, range(1, layers))))
    return tuple(sorted(crossing, key=lambda one: one.place))


def versions_of(value: Any) -> tuple[int, ...]:
    """The number of in-place writes to each value in a structure; 0 for other values than tensors."""
    return tuple(writes_to(leaf) if isinstance(leaf, torch.Tensor) else 0 for leaf in pytree.tree_leaves(value))


def writes_to(tensor: torch.Tensor) -> int:
    """The number of in-place writes to a tensor; 0 for tensors of inference mode, which do not count them."""
    return 0 if tensor.is_inference() else tensor._version
