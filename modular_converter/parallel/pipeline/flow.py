"""What flows in a run of a model: the results of its parts, and the values that enter each layer from before it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.pipeline.asked import AskedTensor, ModuleResult, asked_tensors, same_leaves
from modular_converter.parallel.plans.pipeline_plan import Entry, PipelinePlan
from modular_converter.parallel.trace.call_names import bound_arguments, forward_names


@dataclass(frozen=True)
class LayerFlow:
    """A run of the whole model; its tensors may have no data.

    Attributes:
        results: path of a part (see ``parts``), or of a module with asked tensors -> what each of its calls returned.
        entering: number of a layer -> the values that a stage which begins there receives, by name.
        output: of the model.
        asked: tensors in the output that not the last stage alone makes, in the order in which they were made.
        inner: path of a layer -> for each of its calls, the calls of modules in it that return asked tensors, in order.
    """

    results: Mapping[str, tuple[Any, ...]]
    entering: Mapping[int, Mapping[str, Any]]
    output: Any
    asked: tuple[AskedTensor, ...] = ()
    inner: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)


def layers_entry(model: torch.nn.Module, plan: PipelinePlan) -> Entry:
    """The entry whose module is the list of layers that stages divide.

    Raises:
        ApplyError: a module of the plan that the model lacks, or no list of layers, or several.
    """
    modules = dict(model.named_modules())
    unknown = [entry.module for entry in plan.entries if entry.module not in modules]
    if unknown:
        raise ApplyError(f"{unknown[0]}: the model has no such module")
    kinds = (torch.nn.ModuleList, torch.nn.Sequential)
    lists = [entry for entry in plan.entries if isinstance(modules[entry.module], kinds)]
    fed = [entry for entry in lists if set(entry.inputs) & set(entry.outputs)]  # each member by the one before it
    found = lists if len(lists) == 1 else [e for e in fed if isinstance(modules[e.module], torch.nn.ModuleList)]
    if len(found) != 1:
        raise ApplyError(f"{plan.model}: the plan has {len(found)} lists of layers, one is needed")
    return found[0]


def layer_paths(model: torch.nn.Module, plan: PipelinePlan) -> list[str]:
    """The paths of the layers, in order. Raises as ``layers_entry`` does."""
    path = layers_entry(model, plan).module
    return [f"{path}.{name}" for name, _ in model.get_submodule(path).named_children()]


def parts(model: torch.nn.Module, plan: PipelinePlan) -> list[str]:
    """The paths of what a stage has or lacks as a whole: the modules of the plan, and each layer for itself.

    A module without weights, such as a dropout that runs before the layers and behind them, is on every stage.
    """
    layers = layers_entry(model, plan)
    found: list[str] = []
    for entry in plan.entries:
        if entry == layers:
            found += layer_paths(model, plan)
        elif any(True for _ in model.get_submodule(entry.module).parameters()):
            found.append(entry.module)
    return found


def flow_of(model: torch.nn.Module, plan: PipelinePlan, inputs: Mapping[str, Any], asks: bool = False) -> LayerFlow:
    """The flow of one run; values need gradients as they do in that run.

    Args:
        asks: whether to look for tensors of all stages in the output.

    Raises:
        ApplyError: as ``layers_entry``, or the layers do not take a value that the plan names.
    """
    layers, given = layers_entry(model, plan), {*inputs, *forward_names(model)}
    places = _places(model, plan)
    watched = [name for name, _ in model.named_modules() if name] if asks else parts(model, plan)
    made: list[ModuleResult] = []
    counts = dict.fromkeys(watched, 0)
    entering: dict[int, Mapping[str, Any]] = {}
    arguments: dict[int, Any] = {}
    handles = []
    for path in watched:

        def keep(module: torch.nn.Module, args: Any, result: Any, path: str = path) -> None:
            made.append(ModuleResult(path, counts[path], same_leaves(result)))
            counts[path] += 1

        handles.append(model.get_submodule(path).register_forward_hook(keep))
    for number, path in enumerate(layer_paths(model, plan)):

        def note(module: torch.nn.Module, args: Any, kwargs: Any, number: int = number) -> None:
            entering[number] = handed_over(module, args, kwargs, layers, given)
            arguments[number] = (args, kwargs)

        handles.append(model.get_submodule(path).register_forward_pre_hook(note, with_kwargs=True))
    try:
        output = model(**inputs)
    finally:
        for handle in handles:
            handle.remove()
    asked = asked_tensors(output, made, arguments, places) if asks else ()
    kept = {*parts(model, plan), *(spot.path for one in asked for spot in one.spots)}
    results = {path: tuple(one.value for one in made if one.path == path) for path in kept}
    return LayerFlow(results, entering, output, asked, _inner(layer_paths(model, plan), made, asked))


def _places(model: torch.nn.Module, plan: PipelinePlan) -> dict[str, int]:
    """Path of a layer, or of a module in it -> the layer's number; of a part before the layers -> -1."""
    at, known = plan.entries.index(layers_entry(model, plan)), parts(model, plan)
    found = {entry.module: -1 for entry in plan.entries[:at] if entry.module in known}
    for number, path in enumerate(layer_paths(model, plan)):
        names = (name for name, _ in model.get_submodule(path).named_modules())
        found.update({f"{path}.{name}".rstrip("."): number for name in names})
    return found


def _inner(
    layers: Collection[str], made: Sequence[ModuleResult], asked: Sequence[AskedTensor]
) -> dict[str, tuple[tuple[str, ...], ...]]:
    """See ``LayerFlow.inner``; a call in a layer ends before that of the layer."""
    spots = {(spot.path, spot.call) for one in asked for spot in one.spots}
    found: dict[str, tuple[tuple[str, ...], ...]] = {}
    pending: list[str] = []
    for one in made:
        if one.path in layers:
            inside = tuple(path for path in pending if path.startswith(f"{one.path}."))
            found[one.path] = (*found.get(one.path, ()), inside)
            pending = [path for path in pending if path not in inside]
        elif (one.path, one.call) in spots:
            pending.append(one.path)
    return found


def handed_over(
    layer: torch.nn.Module, args: Any, kwargs: Any, layers: Entry, given: Collection[str]
) -> dict[str, Any]:
    """The arguments of a call of a layer that the plan names, without those that each stage makes of the batch.

    Args:
        given: the names of the model's own inputs, such as `attention_mask`, whether or not the batch has them.

    Raises:
        ApplyError: the layer takes no such argument.
    """
    bound = bound_arguments(layer, args, kwargs)
    names = [name for name in layers.inputs if name in layers.outputs or name not in given]
    missing = next((name for name in names if name not in bound), None)
    if missing is not None:
        raise ApplyError(f"{layers.module}: its layers take no `{missing}`")
    return {name: bound[name] for name in names}
