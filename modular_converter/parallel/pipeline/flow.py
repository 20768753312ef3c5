"""The tensors that pass between the parts of a chain: what enters layers, what later parts ask for, what skips them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch.overrides import TorchFunctionMode

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.pipeline_plan import Entry, PipelinePlan
from modular_converter.parallel.solve.operators import OPERATORS
from modular_converter.parallel.torch_private import TorchDispatchMode, pytree, storage_number
from modular_converter.parallel.trace.record import bound_arguments, forward_names, written_by


# The methods by which Python reads the values of a tensor.
_QUESTIONS = ("__bool__", "__contains__", "__float__", "__index__", "__int__", "equal", "item", "nonzero", "tolist")


class Spot(NamedTuple):
    """A tensor in a result of a module: the index of the call in the run, and of the leaf in the result."""

    path: str
    call: int
    leaf: int


class ResultSources(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows results of modules through the operations outside of these modules, in one run.

    A storage counts as a whole: a write to a view is a write to all tensors in its memory.

    Attributes:
        read: the results whose values the code reads, so that the operations depend on them.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.read: frozenset[Spot] = frozenset()
        self._of: dict[int, frozenset[Spot]] = {}
        self._kept: list[Any] = []  # alive, so that the numbers of storages are unique
        self._inside = 0

    def enter(self) -> None:
        """A module starts; only its result counts."""
        self._inside += 1

    def leave(self, path: str, call: int, result: Any) -> None:
        """The module has returned: it is the only source of its result's tensors from now on."""
        self._inside -= 1
        for leaf, value in enumerate(pytree.tree_leaves(result)):
            if isinstance(value, torch.Tensor):
                self._set(value, frozenset({Spot(path, call, leaf)}))

    def of(self, values: Any) -> frozenset[Spot]:
        """The results on which tensors in a structure depend."""
        tensors = (one for one in pytree.tree_leaves(values) if isinstance(one, torch.Tensor))
        return frozenset().union(*(self._of.get(storage_number(one), frozenset()) for one in tensors))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs)
        known = OPERATORS.get(func.overloadpacket.__name__)
        if not self._inside and not (known is not None and known.traits.shape_only):
            entering = self.of((args, kwargs))
            if entering:
                for value in pytree.tree_leaves((result, written_by(func, args, kwargs or {}))):
                    if isinstance(value, torch.Tensor):
                        self._set(value, self.of(value) | entering)
        return result

    def note_read(self, values: Any) -> None:
        """The model's code reads the values of tensors."""
        if not self._inside:
            self.read |= self.of(values)

    def _set(self, value: torch.Tensor, found: frozenset[Spot]) -> None:
        self._kept.append(value)
        self._of[storage_number(value)] = found


class Questions(TorchFunctionMode):
    """Reports reads of values by the model's code to `ResultSources`; entered last, so that it sees them first."""

    def __init__(self, sources: ResultSources) -> None:
        self._sources = sources

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _QUESTIONS:
            self._sources.note_read(args)
        return func(*args, **(kwargs or {}))


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
    wanted = {id(tensor): layers for tensor in tensors_of(output)}
    seen = [(one, pytree.tree_leaves(one.value)) for one in results if one.path in places]
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


@dataclass(frozen=True)
class LayerFlow:
    """A run of the whole model; its tensors may have no data.

    Attributes:
        results: path of a part (see ``parts``), or of a module with asked tensors -> the result of each call.
        entering: number of a layer -> the values, by name, that a stage beginning there receives.
        output: of the model.
        asked: the tensors that bypass a layer without a name in the plan, in order.
        inner: path of a layer, which runs once -> the calls of modules inside that return asked tensors, in order.
        rewritten: numbers of layers whose entering tensors the model writes to in place.
        changed: paths of modules to whose results it does.
    """

    results: Mapping[str, tuple[Any, ...]]
    entering: Mapping[int, Mapping[str, Any]]
    output: Any
    asked: tuple[AskedTensor, ...] = ()
    inner: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    rewritten: frozenset[int] = frozenset()
    changed: frozenset[str] = frozenset()


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
    before = {name: versions_of(value) for name, value in inputs.items()}
    with watch.hooks:
        watch.start([name for name, _ in model.named_modules() if name] if asks else ())
        # Tensors of inference mode do not count writes.
        with torch.inference_mode(False), torch.set_grad_enabled(trains), watch.sources, Questions(watch.sources):
            output = model(**inputs)
    if written := [name for name, value in inputs.items() if versions_of(value) != before[name]]:
        raise ApplyError(
            f"{type(model).__name__} writes in place to its input {written[0]}, which each process of stages has for itself: let it "
            "change a new tensor (nn.ReLU() in place of nn.ReLU(inplace=True))"
        )
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
    changed = frozenset(one.path for one in watch.made if versions_of(one.value) != one.versions)
    return LayerFlow(results, watch.entering, output, asked, inner, watch.rewritten(), changed)


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
        self.hooks = contextlib.ExitStack()

    def start(self, more: Collection[str]) -> None:
        """Watch the parts, and more modules."""
        for path in dict.fromkeys((*self._parts, *more)):
            module = self._model.get_submodule(path)
            if path in self._parts:
                self.hooks.enter_context(module.register_forward_pre_hook(self._before(path), with_kwargs=True))
            self.hooks.enter_context(module.register_forward_hook(self._after(path)))

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
) -> dict[str, tuple[str, ...]]:
    """See ``LayerFlow.inner``."""
    spots = {(spot.path, spot.call) for one in asked for spot in one.spots}
    calls = [one.path for one in made if (one.path, one.call) in spots]
    return {layer: tuple(path for path in calls if path.startswith(f"{layer}.")) for layer in layers}


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
