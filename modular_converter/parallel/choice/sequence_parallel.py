"""Sequence parallelism, as in Megatron: between the sharded regions each process has its part of the sequence.

Row-wise layers end in a reduce-scatter, and an all-gather precedes column-wise layers. So norms, residuals and dropout
keep only a part of the activations. Without gradients, activations stay whole, since decoding has one token a step.

It is proven on a small instance before the user's model is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from modular_converter.parallel.choice.skeleton import (
    META,
    Skeleton,
    assemble_model,
    run_without_data,
    tried_without_data,
)
from modular_converter.parallel.choice.small_instances import (
    small_instance,
    small_settings,
    target_like,
    without_trial,
)
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.modules import outermost_layers
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Piece, Resolution, fitting, resolve
from modular_converter.parallel.proof.on_ranks import check_on_threads
from modular_converter.parallel.proof.subject import subject_of
from modular_converter.parallel.shard.collectives import (
    SEQUENCE,
    Group,
    part_of_sequence,
    whole_sequence,
)
from modular_converter.parallel.shard.role_parameters import SCATTERS, RoleParameter
from modular_converter.parallel.styles.layout import SUMMED_GRADIENT, Side
from modular_converter.parallel.tiny.build import copy_of
from modular_converter.parallel.tiny.inputs import make_inputs
from modular_converter.parallel.torch_private import current_graph_task_id, pytree


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


# An attribute of each tensor that a layer returns. Code between the layers would make a tensor without it.
_HANDED_ON = "_part_of_sequence"


class SequenceParallel:
    """The hooks on a model's layers; ``detach`` removes them.

    They run first and last, so that other hooks see the modules' own inputs and outputs.

    Args:
        products: linear layers that reduce-scatter their product themselves.

    Attributes:
        inside: the paths of the modules that take or return parts of the sequence in a forward with gradients.
    """

    def __init__(self, model: torch.nn.Module, zone: Zone, group: Group, products: Collection[str] = ()) -> None:
        self.group, self.part = group, torch.Size()
        self.wholes: dict[str, torch.Size] = {}
        self.handles: list[Any] = [model.register_forward_pre_hook(_refuse_states, with_kwargs=True)]
        self.products = [model.get_submodule(path) for path in products]
        layers, regions = (tuple(f"{path}." for path in paths) for paths in (zone.layers, zone.regions))
        paths = [path for path, _ in model.named_modules()]
        self.inside = [one for one in paths if f"{one}.".startswith(layers) and not one.startswith(regions)]
        self._scatter(True)
        for path in zone.layers:
            first, last = path == zone.layers[0], path == zone.layers[-1]
            before, after = partial(self._before_layer, path, first), partial(self._after_layer, path, last)
            self._hook(model.get_submodule(path), before, after)
        for path in zone.regions:
            before, after = partial(self._before_region, path), partial(self._after_region, path)
            self._hook(model.get_submodule(path), before, after)

    def detach(self) -> None:
        """Remove the hooks."""
        for handle in self.handles:
            handle.remove()
        self._scatter(False)

    def _scatter(self, scatters: bool) -> None:
        for product in self.products:
            if scatters:
                product.__dict__[SCATTERS] = True
            else:
                product.__dict__.pop(SCATTERS, None)
            if isinstance(weight := product._parameters["weight"], RoleParameter):
                weight.scatters = scatters

    def _hook(self, module: torch.nn.Module, before: Callable[..., Any], after: Callable[..., Any]) -> None:
        """Exchange what a module takes and returns in a forward with gradients."""

        def taken(_: Any, args: Any, kwargs: Any) -> Any:
            return before(args, kwargs) if torch.is_grad_enabled() else None

        def returned(_: Any, args: Any, result: Any) -> Any:
            return after(result) if torch.is_grad_enabled() else None

        self.handles.append(module.register_forward_pre_hook(taken, prepend=True, with_kwargs=True))
        self.handles.append(module.register_forward_hook(returned))

    def _before_layer(self, path: str, first: bool, args: Any, kwargs: Any) -> Any:
        given = _moving((args, kwargs)) or [one for one in _floats((args, kwargs)) if one.dim() == 3][:1]
        if len(given) != 1 or given[0].dim() != 3:
            shapes = [list(one.shape) for one in given]
            raise ApplyError(
                f"sequence_parallel=: {path} takes {shapes or 'no'} tensors with gradients; it must take exactly one tensor "
                "[batch, sequence, features]: leave it out for this model"
            )
        whole = given[0]
        if not first:
            self._check_handed_on(path, whole)
            self.part = whole.shape
            return None
        length = whole.shape[SEQUENCE]
        if length % self.group.size:
            raise ApplyError(
                f"sequence_parallel=: a sequence of {length} does not divide by {self.group.size} processes: pad it to a "
                f"multiple of {self.group.size}, or leave it out"
            )
        part = part_of_sequence(whole, self.group)
        # After a frozen embedding too: activations are recognised by their gradient.
        part = part if part.requires_grad else part.detach().requires_grad_()
        self.part = part.shape
        return _exchanged((args, kwargs), {id(whole): part})

    @staticmethod
    def _check_handed_on(path: str, tensor: torch.Tensor) -> None:
        computed_again = current_graph_task_id() != -1  # in a backward
        if not computed_again and not hasattr(tensor, _HANDED_ON):
            raise ApplyError(
                f"sequence_parallel=: before {path} the model computes with the output of the previous layer, which is a part "
                "of the sequence: leave it out for this model"
            )

    def _after_layer(self, path: str, last: bool, result: Any) -> Any:
        parts = [one for one in _moving(result) if one.shape == self.part]
        if not parts:
            raise ApplyError(
                f"sequence_parallel=: {path} returns no tensor of the shape of its input: leave it out for this model"
            )
        if last:
            return _exchanged(result, {id(one): whole_sequence(one, self.group) for one in parts})
        for one in parts:
            setattr(one, _HANDED_ON, True)
        return None

    def _before_region(self, path: str, args: Any, kwargs: Any) -> Any:
        # Not the shape in the layer's call: a backward recomputes regions after forwards of other lengths.
        given = {id(one): one for one in _moving((args, kwargs))}
        shapes = {one.shape for one in given.values()}
        if len(shapes) != 1 or len(next(iter(shapes))) != 3:
            said = [list(shape) for shape in shapes] or "none"
            raise ApplyError(
                f"sequence_parallel=: {path} takes tensors of {said}; it must take tensors of one shape [batch, sequence, "
                "features]: leave it out for this model"
            )
        wholes = {key: whole_sequence(one, self.group) for key, one in given.items()}
        self.wholes[path] = next(iter(wholes.values())).shape
        return _exchanged((args, kwargs), wholes)

    def _after_region(self, path: str, result: Any) -> Any:
        whole = self.wholes[path]
        batch, length, *features = whole
        part = torch.Size((batch, length // self.group.size, *features))
        moving = _moving(result)
        if not any(one.shape in (whole, part) for one in moving):
            raise ApplyError(
                f"sequence_parallel=: {path} returns no tensor of {list(whole)}: leave it out for this model"
            )
        return _exchanged(result, {id(one): part_of_sequence(one, self.group) for one in moving if one.shape == whole})


def _refuse_states(model: Any, args: Any, kwargs: Any) -> None:
    if torch.compiler.is_compiling():
        raise ApplyError("sequence_parallel= and torch.compile do not go together yet: leave one of them out")
    config = getattr(model, "config", None)
    if torch.is_grad_enabled() and kwargs.get("output_hidden_states", getattr(config, "output_hidden_states", False)):
        raise ApplyError(
            "output_hidden_states: with sequence_parallel a process has only parts; ask for them under torch.no_grad()"
        )


def _is_leaf(value: Any) -> bool:
    """Whether a value is no tuple, list or dict. Caches count as leaves: otherwise they would be copied."""
    return not isinstance(value, (tuple, list, dict))


def _floats(values: Any) -> list[torch.Tensor]:
    leaves = {id(one): one for one in pytree.tree_leaves(values, _is_leaf) if isinstance(one, torch.Tensor)}
    return [one for one in leaves.values() if one.is_floating_point()]


def _moving(values: Any) -> list[torch.Tensor]:
    """The tensors that require gradients, each once: the activations."""
    return [one for one in _floats(values) if one.requires_grad]


def _exchanged(values: Any, others: dict[int, torch.Tensor]) -> Any:
    return pytree.tree_map(lambda leaf: others.get(id(leaf), leaf), values, is_leaf=_is_leaf)


_RANKS = 2


@dataclass(frozen=True)
class SequencePlan:
    """A plan with sequence parallelism; ``products`` are the result of ``closing_products``."""

    plan: Resolution
    zone: Zone
    products: frozenset[str]


def unproven_sequence_plan(model: torch.nn.Module, plan: Plan, skeleton: Skeleton) -> SequencePlan:
    """The plan of a model, whose skeleton this is. Raises ``ApplyError`` if the model's form does not allow one."""
    resolution = resolve(plan, model)
    zone = zone_of(model, resolution)
    return SequencePlan(with_summed_weights(resolution, zone), zone, closing_products(skeleton, resolution, zone))


def difference(model: Any, plan: Plan, zone: Zone) -> str:
    """The difference between a small instance with and without the plan, in words; empty if there is none."""
    small = small_instance(target_like(model), small_settings(model))
    resolution = resolve(fitting(plan, small.model), small.model)
    own = zone_of(small.model, resolution)
    if untried := without_trial(kinds_between(model, zone), kinds_between(small.model, own)):
        return untried
    ids = small.inputs.get("input_ids")
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or ids.shape[1] < _RANKS:
        return "nothing can be tried, since the model takes no input_ids"
    even = ids[:, : ids.shape[1] // _RANKS * _RANKS]
    verdict = check_on_threads(
        subject_of(copy_of(small.model), {**small.inputs, "input_ids": even}, second=False),
        with_summed_weights(resolution, own),
        _RANKS,
        lambda applied: SequenceParallel(applied.model, own, applied.group),
    )
    return verdict.reason
