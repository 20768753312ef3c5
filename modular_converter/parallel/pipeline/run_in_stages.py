"""Run a model stage by stage after a pipeline plan, with nothing handed over but the named tensors.

Each stage is a copy of the model whose other modules are emptied: they give tensors full of NaN. Inputs of the model
that no module of the stage names are zeros. A tensor that the plan forgets therefore shows in the numbers.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.pipeline.balance import spans
from modular_converter.parallel.plans.pipeline_plan import Entry, PipelinePlan
from modular_converter.parallel.proof.compare import run_model
from modular_converter.parallel.proof.judge import Reference
from modular_converter.parallel.tiny.seed import seed_cpu
from modular_converter.parallel.trace.call_names import bound_arguments
from modular_converter.parallel.trace.record import tensors_in


class _Stop(Exception):
    """The stage is done."""


@dataclass
class _Stage:
    """One stage: its model, the border modules, and what passed its borders."""

    model: torch.nn.Module
    first: torch.nn.Module | None
    last: torch.nn.Module | None
    layers: Entry
    inputs: dict[str, Any]
    received: dict[str, Any] = field(default_factory=dict)
    sent: dict[str, Any] = field(default_factory=dict)


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


def run_in_stages(
    model: torch.nn.Module,
    plan: PipelinePlan,
    inputs: Mapping[str, Any],
    cuts: tuple[int, ...],
    gradients: bool = True,
) -> Reference:
    """Outputs of the last stage, and gradients by parameter name summed over the stages.

    Args:
        model: whole, on the CPU; it is copied, not changed.
        cuts: the first layer of each stage after the first.

    Raises:
        ApplyError: the plan does not fit the model, or names something that no layer takes.
    """
    layers = layers_entry(model, plan)
    count = len(list(model.get_submodule(layers.module).children()))
    blanks = _results(model, plan, inputs)
    stages = [_stage(model, plan, inputs, blanks, span) for span in spans(cuts, count)]
    for stage, after in zip(stages, stages[1:]):
        _forward(stage)
        after.received = {name: _leaf(value) for name, value in stage.sent.items()}
    _hooks(stages[-1])
    found = run_model(stages[-1].model, stages[-1].inputs, gradients, together=True)
    first_names = _first_names(model)
    total = {first_names[name]: gradient for last in found.gradients for name, gradient in last.items()}
    for stage, after in zip(reversed(stages[:-1]), reversed(stages[1:])):
        if gradients:
            _backward(stage, after)
            for alias, parameter in stage.model.named_parameters():
                if parameter.grad is not None:
                    name = first_names[alias]
                    total[name] = total[name] + parameter.grad if name in total else parameter.grad
    return Reference(found.outputs, [total] if gradients else [])


def _first_names(model: torch.nn.Module) -> dict[str, str]:
    """Each parameter name -> the first name of the same parameter, for weights that are tied across stages."""
    first: dict[int, str] = {}
    return {name: first.setdefault(id(p), name) for name, p in model.named_parameters(remove_duplicate=False)}


def _forward(stage: _Stage) -> None:
    seed_cpu(11)
    _hooks(stage)
    try:
        stage.model(**stage.inputs)
    except _Stop:
        return
    raise ApplyError(f"{stage.layers.module}: the run ended before the next stage's first layer was called")


def _backward(stage: _Stage, after: _Stage) -> None:
    """Hand the gradients of received tensors to the tensors that were sent, and go on backward from there."""
    pairs = zip(tensors_in(list(stage.sent.values())), tensors_in(list(after.received.values())))
    wanted = [(sent, got.grad) for sent, got in pairs if sent.requires_grad and got.grad is not None]
    if wanted:
        torch.autograd.backward([sent for sent, _ in wanted], [gradient for _, gradient in wanted])


def _results(model: torch.nn.Module, plan: PipelinePlan, inputs: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Path -> what each call of it returned in a run of the whole model, as blanks of the same shapes."""
    found: dict[str, list[Any]] = {}
    handles = []
    for path, module in _units(model, plan):
        calls = found.setdefault(path, [])
        handles.append(module.register_forward_hook(lambda m, a, result, calls=calls: calls.append(_blank(result))))
    try:
        with torch.no_grad():
            model(**inputs)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _units(model: torch.nn.Module, plan: PipelinePlan) -> list[tuple[str, torch.nn.Module]]:
    """The modules that a stage keeps or empties: each module of the plan, but each layer for itself."""
    layers = layers_entry(model, plan)
    found = []
    for entry in plan.entries:
        module = model.get_submodule(entry.module)
        children = [(f"{entry.module}.{name}", child) for name, child in module.named_children()]
        found += children if entry == layers else [(entry.module, module)]
    return found


def _blank(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.full_like(value, math.nan) if value.is_floating_point() else torch.zeros_like(value)
    return _mapped(value, _blank)


def _leaf(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().requires_grad_(value.requires_grad)
    return _mapped(value, _leaf)


def _mapped(value: Any, change: Any) -> Any:
    """A structure of tensors with each one changed; what is neither tensor, number nor text is left out."""
    if isinstance(value, Mapping):
        return type(value)(**{key: change(item) for key, item in value.items()})
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(change(item) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(change(item) for item in value)
    return value if isinstance(value, (bool, int, float, str)) else None


def _stage(
    model: torch.nn.Module,
    plan: PipelinePlan,
    inputs: Mapping[str, Any],
    blanks: dict[str, list[Any]],
    span: range,
) -> _Stage:
    layers = layers_entry(model, plan)
    local = copy.deepcopy(model)
    children = [f"{layers.module}.{name}" for name, _ in model.get_submodule(layers.module).named_children()]
    at = plan.entries.index(layers)
    kept = {children[i] for i in span}
    named = set(layers.inputs)
    for index, entry in enumerate(plan.entries):
        if entry != layers and (span.start == 0 if index < at else span.stop == len(children)):
            kept.add(entry.module)
            named.update(entry.inputs)
    for path, module in _units(local, plan):
        if path not in kept:
            _empty(module, blanks[path])
    first = local.get_submodule(children[span.start]) if span.start else None
    last = local.get_submodule(children[span.stop]) if span.stop < len(children) else None
    given = {name: value if name in named else _hidden(value) for name, value in inputs.items()}
    return _Stage(local, first, last, layers, given)


def _hidden(value: Any) -> Any:
    return torch.zeros_like(value) if isinstance(value, torch.Tensor) else value


def _empty(module: torch.nn.Module, results: list[Any]) -> None:
    """Take the weights away, not the structure: a caller may read a type or an attribute, but no value."""
    calls = iter(results)
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                part._parameters[name] = torch.nn.Parameter(_blank(parameter.detach()), requires_grad=False)

    @functools.wraps(module.forward)
    def blank(*args: Any, **kwargs: Any) -> Any:
        return copy.deepcopy(next(calls))

    module.forward = blank


def _hooks(stage: _Stage) -> None:
    """Give received tensors to the layers, and stop at the first layer of the next stage."""
    passing = {name: value for name, value in stage.received.items() if name not in stage.layers.outputs}
    for layer in stage.model.get_submodule(stage.layers.module).children():
        if layer is stage.last:
            break
        values = stage.received if layer is stage.first else passing
        layer.register_forward_pre_hook(_giving(values), with_kwargs=True)
    if stage.last is not None:
        stage.last.register_forward_pre_hook(_taking(stage, passing), with_kwargs=True)


def _giving(values: dict[str, Any]) -> Any:
    def hook(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        if not values:
            return None
        return (), {**bound_arguments(module, args, kwargs), **values}

    return hook


def _taking(stage: _Stage, passing: dict[str, Any]) -> Any:
    def hook(module: torch.nn.Module, args: Any, kwargs: Any) -> Any:
        bound = bound_arguments(module, args, kwargs)
        for name in stage.layers.inputs:
            if name in stage.inputs:
                continue
            if name not in bound:
                raise ApplyError(f"{stage.layers.module}: its layers take no `{name}`")
            stage.sent[name] = passing.get(name, bound[name])
        raise _Stop

    return hook
