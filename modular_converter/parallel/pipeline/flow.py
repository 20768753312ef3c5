"""What flows in a run of a model: the results of its parts, and the values that enter each layer from before it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.pipeline_plan import Entry, PipelinePlan
from modular_converter.parallel.trace.call_names import bound_arguments, forward_names


@dataclass(frozen=True)
class LayerFlow:
    """A run of the whole model; its tensors may have no data.

    Attributes:
        results: path of a part (see ``parts``) -> what each of its calls returned.
        entering: number of a layer -> the values that a stage which begins there receives, by name.
        output: of the model.
    """

    results: Mapping[str, tuple[Any, ...]]
    entering: Mapping[int, Mapping[str, Any]]
    output: Any


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
    """The paths of what a stage has or lacks as a whole: the modules of the plan, and each layer for itself."""
    layers = layers_entry(model, plan)
    found: list[str] = []
    for entry in plan.entries:
        found += layer_paths(model, plan) if entry == layers else [entry.module]
    return found


def flow_of(model: torch.nn.Module, plan: PipelinePlan, inputs: Mapping[str, Any]) -> LayerFlow:
    """The flow of one run; values need gradients as they do in that run.

    Raises:
        ApplyError: as ``layers_entry``, or the layers do not take a value that the plan names.
    """
    results: dict[str, list[Any]] = {path: [] for path in parts(model, plan)}
    entering: dict[int, Mapping[str, Any]] = {}
    layers, given = layers_entry(model, plan), {*inputs, *forward_names(model)}
    handles = []
    for path, found in results.items():
        module = model.get_submodule(path)
        handles.append(module.register_forward_hook(lambda m, args, result, found=found: found.append(result)))
    for number, path in enumerate(layer_paths(model, plan)):

        def note(module: torch.nn.Module, args: Any, kwargs: Any, number: int = number) -> None:
            entering[number] = handed_over(module, args, kwargs, layers, given)

        handles.append(model.get_submodule(path).register_forward_pre_hook(note, with_kwargs=True))
    try:
        output = model(**inputs)
    finally:
        for handle in handles:
            handle.remove()
    return LayerFlow({path: tuple(found) for path, found in results.items()}, entering, output)


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
