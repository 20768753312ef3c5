"""The zone of sequence parallelism in a model: between the sharded regions of each layer, at its norms."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from modular_converter.parallel.choice.skeleton import (
    META,
    Skeleton,
    assemble_model,
    run_without_data,
    tried_without_data,
)
from modular_converter.parallel.engine.group.data_ranks import outermost_layers
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.resolve import Piece, Resolution
from modular_converter.parallel.styles.layout import SUMMED_GRADIENT, Side
from modular_converter.parallel.tiny.inputs import make_inputs
from modular_converter.parallel.torch_private import pytree


_SUMMED = frozenset({SUMMED_GRADIENT})
CURE = "leave sequence_parallel out for this model"


@dataclass(frozen=True)
class Zone:
    """The layers in which activations are parts of the sequence, except in the regions.

    Attributes:
        layers: paths, in the order in which they run.
        regions: paths of modules in the layers that take and return whole sequences.
        weights: names of the parameters in the layers outside of the regions: norms and scales.
    """

    layers: tuple[str, ...]
    regions: tuple[str, ...]
    weights: tuple[str, ...]


def zone_of(model: torch.nn.Module, plan: Resolution) -> Zone:
    """The zone of a model under a plan.

    Raises ``ApplyError`` if the plan does not allow one; the message names the place.
    """
    names = {id(module): path for path, module in model.named_modules()}
    cut = {name for name, piece in plan.pieces.items() if piece.dim >= 0}
    layers = [names[id(layer)] for layer in outermost_layers(model)]
    layers = [path for path in layers if any(name.startswith(f"{path}.") for name in cut)]
    lists = sorted({path.rpartition(".")[0] for path in layers})
    if len(lists) != 1:
        said = " and ".join(lists) or "none"
        raise ApplyError(
            f"sequence_parallel= needs one list of layers that the plan cuts, and there are {said}: {CURE}"
        )
    regions: list[str] = []
    weights: list[str] = []
    hooked = {path for path, _ in plan.hooks}
    for path in layers:
        layer = model.get_submodule(path)
        own = [f"{path}.{leaf}" for leaf, _ in layer.named_parameters(recurse=False)]
        if path in hooked or any(name in plan.pieces for name in own):
            raise ApplyError(f"sequence_parallel=: {path} has weights of its own that the plan cuts: {CURE}")
        weights += own
        for child, module in layer.named_children():
            inner = [(f"{path}.{child}.{name}", one) for name, one in module.named_parameters()]
            if all(one.dim() <= 1 and name not in plan.pieces for name, one in inner):
                weights += [name for name, _ in inner]
            elif any(f"{path}.{child}.{leaf}" in cut for leaf, _ in module.named_parameters(recurse=False)):
                raise ApplyError(
                    f"sequence_parallel=: {path}.{child} is cut, and no module around it in the layer takes and returns whole "
                    f"features: {CURE}"
                )
            else:
                regions.append(f"{path}.{child}")
    _refuse_other_uses(model, set(weights))
    return Zone(tuple(layers), tuple(regions), tuple(weights))


def _refuse_other_uses(model: torch.nn.Module, weights: set[str]) -> None:
    """Refuse weights that are also used with whole sequences: their gradients from there are complete on each rank."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    between = {id(parameters[name]): name for name in weights}
    for name, one in parameters.items():
        if id(one) in between and name not in weights:
            raise ApplyError(f"sequence_parallel=: {between[id(one)]} is also {name}, outside of its layer: {CURE}")


def kinds_between(model: torch.nn.Module, zone: Zone) -> set[type[torch.nn.Module]]:
    """The classes of the modules that compute on parts of the sequence: those of the layers outside of the regions."""
    inside = {id(module) for path in zone.regions for module in model.get_submodule(path).modules()}
    modules = (module for path in zone.layers for module in model.get_submodule(path).modules())
    return {type(module) for module in modules if id(module) not in inside}


def with_summed_weights(plan: Resolution, zone: Zone) -> Resolution:
    """The plan, with an all-reduce of the gradients of the zone's weights: each rank computes them for its part."""
    summed = {name: Piece(_SUMMED, -1, (), "sequence_parallel") for name in zone.weights}
    return replace(plan, pieces=plan.pieces | summed)


def closing_products(skeleton: Skeleton, plan: Resolution, zone: Zone) -> frozenset[str]:
    """Linear layers whose summed product is the result of their region, so that a reduce-scatter can replace the sum."""
    model: Any = assemble_model(skeleton, META)[0].eval()
    summing = {
        name.rpartition(".")[0]
        for name, piece in plan.pieces.items()
        if name.endswith(".weight") and any(role.cut is Side.INPUT for role in piece.roles)
    }
    made: dict[int, tuple[str, Any]] = {}
    found: set[str] = set()
    for path, module in model.named_modules():
        if path in summing and type(module) is torch.nn.Linear:
            module.register_forward_hook(lambda _, args, result, path=path: made.update({id(result): (path, result)}))
    for region in zone.regions:

        def note(_: Any, args: Any, result: Any, region: str = region) -> None:
            first = next((leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)), None)
            path, _ = made.get(id(first), ("", None))
            if path.startswith(f"{region}."):
                found.add(path)

        model.get_submodule(region).register_forward_hook(note)
    with torch.random.fork_rng(devices=[]):
        tried_without_data(lambda: run_without_data(model, (), make_inputs(model)))
    return frozenset(found)
