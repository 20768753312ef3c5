"""The data flow in a run of a model: the results of its parts, and the values that enter each layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.pipeline.asked import (
    AskedTensor,
    ModuleResult,
    asked_tensors,
    same_leaves,
    tensors_of,
    versions_of,
)
from modular_converter.parallel.pipeline.skips import Questions, ResultSources, Spot
from modular_converter.parallel.plans.pipeline_plan import Entry, PipelinePlan
from modular_converter.parallel.trace.call_names import bound_arguments, forward_names


@dataclass(frozen=True)
class LayerFlow:
    """A run of the whole model; its tensors may have no data.

    Attributes:
        results: path of a part (see ``parts``), or of a module with asked tensors -> the result of each call.
        entering: number of a layer -> the values, by name, that a stage beginning there receives.
        output: of the model.
        asked: the tensors that bypass a layer without a name in the plan, in order.
        inner: path of a layer -> for each call, the calls of modules inside that return asked tensors, in order.
        rewritten: numbers of layers whose entering tensors the model writes to in place.
    """

    results: Mapping[str, tuple[Any, ...]]
    entering: Mapping[int, Mapping[str, Any]]
    output: Any
    asked: tuple[AskedTensor, ...] = ()
    inner: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)
    rewritten: frozenset[int] = frozenset()


def layers_entry(model: torch.nn.Module, plan: PipelinePlan) -> Entry:
    """The entry whose module is the list of layers that stages divide.

    Raises ``ApplyError`` if the model lacks a module of the plan, or has no list of layers, or several.
    """
    modules = dict(model.named_modules())
    unknown = [entry.module for entry in plan.entries if entry.module not in modules]
    if unknown:
        raise ApplyError(f"{unknown[0]}: the model has no such module")
    kinds = (torch.nn.ModuleList, torch.nn.Sequential)
    lists = [entry for entry in plan.entries if isinstance(modules[entry.module], kinds)]
    fed = [entry for entry in lists if set(entry.inputs) & set(entry.outputs)]  # each member by the member before it
    found = lists if len(lists) == 1 else [e for e in fed if isinstance(modules[e.module], torch.nn.ModuleList)]
    if len(found) != 1:
        raise ApplyError(f"{plan.model}: the plan has {len(found)} lists of layers, one is needed")
    return found[0]


def layer_paths(model: torch.nn.Module, plan: PipelinePlan) -> list[str]:
    """The paths of the layers, in order. Raises as ``layers_entry`` does."""
    path = layers_entry(model, plan).module
    return [f"{path}.{name}".lstrip(".") for name, _ in model.get_submodule(path).named_children()]


def parts(model: torch.nn.Module, plan: PipelinePlan) -> list[str]:
    """The paths of the parts that a stage has or lacks as a whole: the modules of the plan, and each layer.

    A module without weights, such as a dropout that runs before and after the layers, is on every stage.
    """
    layers = layers_entry(model, plan)
    found: list[str] = []
    for entry in plan.entries:
        if entry == layers:
            found += layer_paths(model, plan)
        elif any(True for _ in model.get_submodule(entry.module).parameters()):
            found.append(entry.module)
    return found


def flow_of(
    model: torch.nn.Module, plan: PipelinePlan, inputs: Mapping[str, Any], asks: bool = False, skips: bool = False
) -> LayerFlow:
    """The flow of one run; values require gradients as in that run.

    Args:
        asks: whether to find all tensors that the output needs from earlier stages.
        skips: whether to find tensors without a name in the plan that layers and later modules need from earlier stages;
            tensors in the output count only if they depend on the last layer.

    Raises ``ApplyError`` as ``layers_entry`` does, and if the layers do not take a value that the plan names.
    """
    layers, places = layer_paths(model, plan), _places(model, plan)
    watch = _Watch(model, plan, {*inputs, *forward_names(model)}, skips)
    trains = torch.is_grad_enabled()
    try:
        watch.start([name for name, _ in model.named_modules() if name] if asks else ())
        # Tensors of inference mode do not count writes.
        with torch.inference_mode(False), torch.set_grad_enabled(trains), watch.sources, Questions(watch.sources):
            output = model(**inputs)
    finally:
        watch.end()
    last = len(layers)
    for leaf in tensors_of(output):
        if asks or (skips and any(places.get(spot.path, last) >= last - 1 for spot in watch.sources.of(leaf))):
            watch.need(watch.sources.of(leaf), last)
    if skips:
        watch.need(watch.sources.read, last)
    asked = asked_tensors(output if asks else (), watch.made, watch.needs, places, last)
    kept = {*parts(model, plan), *(spot.path for one in asked for spot in one.spots)}
    results = {path: tuple(one.value for one in watch.made if one.path == path) for path in kept}
    inner = _inner(layers, watch.made, asked)
    return LayerFlow(results, watch.entering, output, asked, inner, watch.rewritten())


class _Watch:
    """Keeps the arguments and results of the parts of a model in one run.

    Attributes:
        made: results of all watched modules, in order of the calls' ends.
        entering: as in ``LayerFlow``.
        sources: of tensors outside of the parts.
        needs: a result with later uses -> the last layer that needs it.
    """

    def __init__(self, model: torch.nn.Module, plan: PipelinePlan, given: Collection[str], skips: bool) -> None:
        self.made: list[ModuleResult] = []
        self.entering: dict[int, Mapping[str, Any]] = {}
        self.sources = ResultSources()
        self.needs: dict[Spot, int] = {}
        self._model, self._given, self._skips = model, given, skips
        self._layers, self._paths, self._parts = (
            layers_entry(model, plan),
            layer_paths(model, plan),
            parts(model, plan),
        )
        self._behind = {entry.module for entry in plan.entries[plan.entries.index(self._layers) + 1 :]}
        self._counts: Counter[str] = Counter()
        self._versions: dict[int, tuple[int, ...]] = {}
        self._handles: list[Any] = []

    def start(self, more: Collection[str]) -> None:
        """Watch the parts, and more modules."""
        for path in dict.fromkeys((*self._parts, *more)):
            module = self._model.get_submodule(path)
            if path in self._parts:
                self._handles.append(module.register_forward_pre_hook(self._before(path), with_kwargs=True))
            self._handles.append(module.register_forward_hook(self._after(path)))

    def end(self) -> None:
        """Stop watching."""
        for handle in self._handles:
            handle.remove()

    def need(self, found: Collection[Spot], until: int) -> None:
        """Note that a layer, or a part after all layers, uses these results."""
        for spot in found:
            self.needs[spot] = max(until, self.needs.get(spot, until))

    def rewritten(self) -> frozenset[int]:
        """See ``LayerFlow``."""
        return frozenset(n for n, values in self.entering.items() if versions_of(values) != self._versions[n])

    def _before(self, path: str) -> Callable[..., None]:
        number = self._paths.index(path) if path in self._paths else None

        def before(module: torch.nn.Module, args: Any, kwargs: Any) -> None:
            if number is not None:
                handed = self.entering[number] = handed_over(module, args, kwargs, self._layers, self._given)
                self._versions[number] = versions_of(handed)
                rest = {n: v for n, v in bound_arguments(module, args, kwargs).items() if n not in handed}
                self._need_if_skipping(rest, number)
                # A stage that begins here receives these values; earlier stages may need the results behind them.
                chained = {n: v for n, v in handed.items() if n in self._layers.outputs}
                self._need_if_skipping(chained, number - 1)
            elif path in self._behind:
                self._need_if_skipping((args, kwargs), len(self._paths))
            self.sources.enter()

        return before

    def _need_if_skipping(self, values: Any, until: int) -> None:
        if self._skips:
            self.need(self.sources.of(values), until)

    def _after(self, path: str) -> Callable[..., None]:
        is_part = path in self._parts

        def after(module: torch.nn.Module, args: Any, result: Any) -> None:
            call = self._counts[path]
            self._counts[path] += 1
            self.made.append(ModuleResult(path, call, same_leaves(result), versions_of(result)))
            if is_part:
                self.sources.leave(path, call, result)

        return after


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
    """See ``LayerFlow.inner``; calls in a layer end before the layer's call."""
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
    """The arguments of a layer's call that the plan names, without those that each stage computes from the batch.

    Args:
        given: the names of the model's own inputs, such as `attention_mask`, also if the batch lacks them.

    Raises ``ApplyError`` if the layer takes no such argument.
    """
    bound = bound_arguments(layer, args, kwargs)
    names = [name for name in layers.inputs if name in layers.outputs or name not in given]
    own = {name: bound[name] for name in names if name in bound}
    missing = [name for name in names if name not in bound]
    # Layers of different classes may have different names for results of the layer before.
    if missing and not (set(missing) <= set(layers.outputs) and set(own) & set(layers.outputs)):
        raise ApplyError(f"{layers.module}: its layers take no `{missing[0]}`")
    return own
