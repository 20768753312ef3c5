"""Tensors of earlier stages that the model's output has, such as hidden states of all layers, and where a run made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class ModuleResult:
    """What one call of a module returned; ``call`` counts the module's calls in one run."""

    path: str
    call: int
    value: Any


@dataclass(frozen=True)
class Spot:
    """A tensor in what a module returned: ``leaf`` is its place among all values there."""

    path: str
    call: int
    leaf: int


@dataclass(frozen=True)
class AskedTensor:
    """A tensor that the last stage needs for the model's output and an earlier stage may make.

    Attributes:
        place: number of the layer that makes it; -1 for what stands before the layers.
        spots: where it is returned, first by the module that makes it.
    """

    place: int
    spots: tuple[Spot, ...]


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors in a structure, in order."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def same_leaves(value: Any) -> Any:
    """The same tensors in new containers, since a model's own code may write to the containers."""
    return pytree.tree_map(lambda leaf: leaf, value)


def asked_tensors(
    output: Any, results: Sequence[ModuleResult], arguments: Mapping[int, Any], places: Mapping[str, int]
) -> tuple[AskedTensor, ...]:
    """What of the output is returned by layers, by modules in them or before them, in the order in which it was made.

    An output that is an argument of a layer, and no result, is computed from the results of the layer before it, and one that
    no module returns may be computed from what stands before the layers: these count as asked for, too.

    Args:
        results: of all modules in one run, in the order in which the calls ended.
        arguments: number of a layer -> the arguments of its call.
        places: path of a module -> its place, as in ``AskedTensor``.
    """
    last = max((number for number, one in enumerate(results) if places.get(one.path, -1) >= 0), default=-1)
    seen = [one for one in results[: last + 1] if one.path in places]
    wanted = {id(tensor) for tensor in tensors_of(output)}
    behind = [one for one in results[last + 1 :] if not any(path.startswith(f"{one.path}.") for path in places)]
    computed = wanted - {id(tensor) for one in (*seen, *behind) for tensor in tensors_of(one.value)}
    used = {
        layer - 1 for layer, values in arguments.items() if computed & {id(tensor) for tensor in tensors_of(values)}
    }
    sources = used or {-1} if computed else set()
    wanted |= {id(tensor) for one in seen if places[one.path] in sources for tensor in tensors_of(one.value)}
    found: dict[int, AskedTensor] = {}
    for one in seen:
        for leaf, tensor in enumerate(pytree.tree_leaves(one.value)):
            if isinstance(tensor, torch.Tensor) and id(tensor) in wanted:
                old = found.get(id(tensor), AskedTensor(places[one.path], ()))
                found[id(tensor)] = AskedTensor(old.place, (*old.spots, Spot(one.path, one.call, leaf)))
    return tuple(found.values())
