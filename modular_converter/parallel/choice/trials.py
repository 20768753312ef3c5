"""Trials of a user's model before a process starts: its inputs, the kinds of its layers, forwards without and with data.

A forward runs without data; if that fails, a short copy with data runs. The whole model runs, and then the model as one of
the ranks holds it.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from modular_converter.parallel.choice.skeleton import (
    META,
    Guesses,
    Skeleton,
    assemble_model,
    on_meta,
    run_without_data,
    skeleton_of,
    tried_without_data,
)
from modular_converter.parallel.errors import ApplyError, one_line
from modular_converter.parallel.modules import own_attributes
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.text_checks import is_inside
from modular_converter.parallel.tiny.inputs import candidates, inputs_that_run
from modular_converter.parallel.trace.graph import Trace
from modular_converter.parallel.trace.layer_kinds import Kind, inner_path, is_layer, layer_kinds, layer_of
from modular_converter.parallel.trace.record import record


# The model's own types, and the type in which all operations run without data, such as grouped products.
TYPES = (None, torch.bfloat16)
# The latest results that are kept: the choice of a plan and the hand-over need the same.
_MOST_LATEST = 8


def model_without_data(skeleton: Skeleton, kind: torch.dtype | None) -> torch.nn.Module:
    """The whole model without data, converted to ``kind`` unless it is None."""
    model = assemble_model(skeleton, META)[0]
    return model if kind is None else model.to(kind)


def inputs_without_data(skeleton: Skeleton, kind: torch.dtype | None) -> dict[str, Any]:
    """The first inputs with which a model runs without data, floating tensors converted to ``kind`` unless it is None.

    They are kept for the next rank, and the error if no inputs are known: to try four layouts of images of 1540 pixels takes
    0.8 s. Runs without data take copies of them.
    """
    found = _inputs_or_reason(skeleton, kind)
    if isinstance(found, str):
        raise ApplyError(f"no inputs are known: {found}")
    return dict(found)


@functools.lru_cache(_MOST_LATEST)
def _inputs_or_reason(skeleton: Skeleton, kind: torch.dtype | None) -> dict[str, Any] | str:
    try:
        return inputs_on_meta(model_without_data(skeleton, kind).eval(), kind)
    except Exception as error:  # raised by the model's own code, or there are no inputs for it
        return one_line(error)


def inputs_on_meta(model: torch.nn.Module, kind: torch.dtype | None) -> dict[str, Any]:
    """The same for a model on the meta device."""

    def run(inputs: dict[str, Any]) -> None:
        given = on_meta_of_type(inputs, kind)
        tried_without_data(functools.partial(run_without_data, model, kwargs=given))

    with Guesses():
        return on_meta_of_type(inputs_that_run(model, run), kind)


def on_meta_of_type(inputs: Mapping[str, Any], kind: torch.dtype | None) -> dict[str, Any]:
    """Inputs on the meta device, floating tensors converted to ``kind`` unless it is None."""
    given = {name: on_meta(value) for name, value in inputs.items()}
    return given if kind is None else of_type(given, kind)


def of_type(inputs: dict[str, Any], kind: torch.dtype) -> dict[str, Any]:
    """Inputs with their floating tensors converted to ``kind``."""
    floating = {n: v for n, v in inputs.items() if isinstance(v, torch.Tensor) and v.is_floating_point()}
    return inputs | {name: value.to(kind) for name, value in floating.items()}


def inputs_with_data(model: torch.nn.Module) -> dict[str, Any]:
    """Inputs with data in the layout with which the model runs without data; the likeliest ones if it does not run."""
    found = candidates(model)
    likeliest = next(found)
    try:
        known = _layout(inputs_without_data(skeleton_of(model), None))
    except Exception:  # of the model's own code
        return likeliest
    return (
        likeliest if _layout(likeliest) == known else next((one for one in found if _layout(one) == known), likeliest)
    )


def _layout(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.shape if isinstance(value, torch.Tensor) else type(value) for name, value in inputs.items()}


# Switches that do not distinguish kinds.
_NO_SWITCHES = ("training",)
# Arguments of torch's own modules that decide their arithmetic.
_OPTIONS = ("max_norm",)
# The latest results that are kept: the choice of a plan and the probe need the same, and 32 layers take 1.3 s.
_MOST_KINDS = 4


def kinds_of(model: torch.nn.Module, skeleton: Skeleton | None = None) -> dict[str, Kind]:
    """Path of each layer -> its kind: from a run without data, or from its modules alone if that run fails.

    Modules that were put into the model after its construction count, such as adapters and quantised layers.

    Args:
        skeleton: of which the model was made, if it was.
    """
    found = traced_kinds(model, skeleton)
    return kinds_by_modules(model) if found is None else {path: kind for path, kind in found.items() if path}


def traced_kinds(model: torch.nn.Module, skeleton: Skeleton | None = None) -> dict[str, Kind] | None:
    """The kinds from a run without data; None if that run fails. The empty path is the code around the layers."""
    try:
        found = _kinds_without_data(skeleton_of(model) if skeleton is None else skeleton)
    except Exception:  # raised by the model's own code
        return None
    if found is None:
        return None
    return {path: kind | _facts_of(model.get_submodule(path)) if path else kind for path, kind in found.items()}


@functools.lru_cache(_MOST_KINDS)
def _kinds_without_data(skeleton: Skeleton) -> dict[str, Kind] | None:
    try:
        return kinds_of_call(skeleton, inputs_without_data(skeleton, None))
    except Exception:  # raised by the model's own code for unexpected inputs, or without data
        return None


def kinds_of_call(
    skeleton: Skeleton, inputs: Mapping[str, Any], change: Callable[[torch.nn.Module], None] | None = None
) -> dict[str, Kind]:
    """The kinds from one run on inputs, whose data do not matter. Raises ``TraceError``.

    Args:
        change: called with the model before it runs.
    """

    def run() -> Trace:
        model = assemble_model(skeleton, META)[0].eval()
        if change is not None:
            change(model)
        with Guesses():
            return record(model, {name: on_meta(value) for name, value in inputs.items()})

    return layer_kinds(tried_without_data(run))


def kinds_by_modules(model: torch.nn.Module) -> dict[str, Kind]:
    """The kinds of layers from their modules alone, without a run."""
    return {path: _facts_of(module) for path, module in model.named_modules() if is_layer(path)}


def kinds_of_rest(model: torch.nn.Module) -> dict[str, Kind]:
    """Path -> kind of the modules with weights outside of numbered layers: embeddings, heads, last norms."""
    rest = [(path, module) for path, module in model.named_modules() if path and not layer_of(path)]
    return {
        path: _facts_of(module, False) for path, module in rest if next(module.parameters(False), None) is not None
    }


def _facts_of(layer: torch.nn.Module, inside: bool = True) -> Kind:
    """Classes, weights and switches of a layer's modules. A switch, such as a kind of mask, may not show in operations."""
    found: set[tuple[str, ...]] = set()
    for path, module in layer.named_modules() if inside else [("", layer)]:
        place, kind = inner_path(path), type(module)
        found.add(("class", place, f"{kind.__module__}.{kind.__qualname__}"))
        for name, weight in module.named_parameters(recurse=False):
            found.add(("weight", place, name, f"{weight.dim()}d", "" if weight.is_floating_point() else "integers"))
        for name, value in vars(module).items():
            if isinstance(value, (bool, str)) and not name.startswith("_") and name not in _NO_SWITCHES:
                found.add(("setting", place, name, str(value)))
            elif kind.__module__.startswith("torch.nn.") and name in _OPTIONS:
                found.add(("setting", place, name, "None" if value is None else "given"))
    return frozenset(found)


def one_of_each_kind(model: torch.nn.Module, kinds: dict[str, Kind], plan: Plan | None = None) -> torch.nn.Module:
    """A copy of the model with the first layer of each kind; it shares the modules, and layers keep their numbers.

    If a layer has another kind in the copy, because the code counts layers, all layers before the kept ones stay too.

    Args:
        plan: layers for which it has other rules of their own are of other kinds, such as a first half of a pair.
    """
    rules: dict[str, set[tuple[str, Any]]] = {}
    for rule in () if plan is None else plan.rules:
        path = layer_of(rule.pattern)
        rules.setdefault(path, set()).add((rule.pattern.removeprefix(path), replace(rule, pattern="")))
    first: dict[tuple[str, Kind, frozenset[Any]], str] = {}
    for path, kind in kinds.items():
        first.setdefault((path.rpartition(".")[0], kind, frozenset(rules.get(path, ()))), path)
    return _with_layers(model, kinds, set(first.values()))


def ends_of_each_size(model: torch.nn.Module, kinds: dict[str, Kind]) -> torch.nn.Module:
    """The same with the first and the last layer of each kind that have the same sizes and plain values.

    What a layer computes from its own number and a share's sizes, such as ``min(heads, 4 + number)``, shows at an end.
    """
    sizes = sizes_of_layers({path: model.get_submodule(path) for path in kinds})
    ends: dict[tuple[str, Kind, frozenset[Any]], list[str]] = {}
    for path, kind in kinds.items():
        ends.setdefault((path.rpartition(".")[0], kind, sizes[path]), []).append(path)
    return _with_layers(model, kinds, {path for paths in ends.values() for path in (paths[0], paths[-1])})


def sizes_of_layers(layers: Mapping[str, torch.nn.Module]) -> dict[str, frozenset[Any]]:
    """Path -> shapes and attributes of the modules of a layer, without those that count the layers of its list; objects count
    by identity.
    """
    found: dict[str, set[Any]] = {}
    offsets: dict[tuple[str, str, str], set[Any]] = {}
    for path, layer in layers.items():
        own, (owner, _, number) = found.setdefault(path, set()), path.rpartition(".")
        for place, module in layer.named_modules():
            tensors = {**module._parameters, **module._buffers}
            own.update((place, name, tuple(t.shape), t.dtype) for name, t in tensors.items() if t is not None)
            for name, value in own_attributes(module).items():
                if not isinstance(value, torch.nn.Module):
                    own.add((place, name, repr(value) if isinstance(value, _PLAIN_VALUES) else id(value)))
                    offset = value - int(number) if type(value) is int else None
                    offsets.setdefault((owner, place, name), set()).add(offset)
    counting = {key for key, seen in offsets.items() if len(seen) == 1 and None not in seen}
    return {
        path: frozenset(fact for fact in facts if (path.rpartition(".")[0], *fact[:2]) not in counting)
        for path, facts in found.items()
    }


_PLAIN_VALUES = (bool, int, float, str, type(None), tuple, list, dict, torch.dtype)


def _with_layers(model: torch.nn.Module, kinds: dict[str, Kind], kept: set[str]) -> torch.nn.Module:
    lists = {path.rpartition(".")[0] for path in kinds}
    short = _copied(model, "", kept, lists)
    if len(kept) == len(kinds) or kinds_of(short) == {path: kinds[path] for path in kept}:
        return short
    last = {path.rpartition(".")[0]: int(path.rpartition(".")[2]) for path in sorted(kept, key=_number)}
    return _copied(model, "", {path for path in kinds if _number(path) <= last[path.rpartition(".")[0]]}, lists)


def _number(path: str) -> int:
    return int(path.rpartition(".")[2])


def _copied(module: torch.nn.Module, path: str, kept: set[str], lists: set[str]) -> torch.nn.Module:
    """A copy of a module that contains one of the lists, with its lists copied too; any other module itself."""
    if not any(is_inside(name, path) for name in lists):
        return module
    made: torch.nn.Module = type(module).__new__(type(module))  # `copy` refuses modules with parametrizations
    made.__dict__.update(vars(module))
    made.__dict__["_modules"] = inner = dict(module._modules)
    for name, child in module._modules.items():
        below = f"{path}.{name}" if path else name
        if path in lists and isinstance(module, torch.nn.ModuleList):
            if below not in kept:
                del inner[name]
        elif child is not None:
            inner[name] = _copied(child, below, kept, lists)
    return made


# A copy with data has at most so many parameters (0.4 GB in float32); there is one for the whole model, and one for a rank.
MOST_WITH_DATA = 100_000_000


@dataclass(frozen=True)
class Trial:
    """A way to run a model.

    Attributes:
        skeleton: of the model.
        kind: the type of its floating tensors without data; None for the model's own types.
        filled: a copy of the model with data, with one layer of each kind; None for runs without data.
    """

    skeleton: Skeleton
    kind: torch.dtype | None = None
    filled: torch.nn.Module | None = None

    def model(self) -> torch.nn.Module:
        """A new copy of the model, in eval mode; a plan can be applied to it."""
        return (
            model_without_data(self.skeleton, self.kind) if self.filled is None else copy.deepcopy(self.filled)
        ).eval()

    def inputs(self) -> dict[str, Any]:
        """Inputs for its forward. Raises the errors of the model's own code, or ``ApplyError``."""
        return inputs_without_data(self.skeleton, self.kind) if self.filled is None else inputs_with_data(self.filled)

    def run(self, model: torch.nn.Module) -> None:
        """Run a model that ``model`` has made. Raises the errors of its code."""
        given = self.inputs()
        if self.filled is None:
            tried_without_data(lambda: self.run_with(model, given))
        else:
            self.run_with(model, given)

    def run_with(self, model: torch.nn.Module, inputs: dict[str, Any]) -> None:
        """Run the model with inputs, on the present default device. Raises the errors of its code."""
        if self.filled is None:
            run_without_data(model, kwargs=inputs)
            return
        with torch.no_grad():
            model(**inputs)


def trials(skeleton: Skeleton, plan: Plan, model: torch.nn.Module | None = None) -> Iterator[Trial]:
    """The ways to run a model, the cheapest first; of layers that are alike the first and the last run.

    Args:
        plan: that the runs are about; if it names single layers, all layers run.
        model: with its data, for runs with data.
    """
    by_number = any(layer_of(pattern) for pattern in (*(rule.pattern for rule in plan.rules), *plan.attributes))
    short = skeleton if by_number else _short(skeleton)
    for kind in TYPES:
        yield Trial(short, kind)
    filled = None if model is None else trial_with_data(skeleton, model)
    if filled is not None:
        yield filled


def trial_with_data(skeleton: Skeleton, model: torch.nn.Module) -> Trial | None:
    """The way to run a model with its data; None if it is too large for this."""
    filled = with_data(model, MOST_WITH_DATA)
    return None if filled is None else Trial(skeleton, filled=filled)


@functools.lru_cache(_MOST_LATEST)
def _short(skeleton: Skeleton) -> Skeleton:
    """The model with the first and the last layer of each kind and size; the whole one if its runs are not known.

    The latest are kept: 48 layers of GPT-2 take 0.4 s a run, of which a choice needs 25.
    """
    model = model_without_data(skeleton, None)
    return skeleton_of(ends_of_each_size(model, kinds_of(model, skeleton)))


def with_data(model: torch.nn.Module, most: float) -> torch.nn.Module | None:
    """A copy of a model in float32, with one layer of each kind, and random weights where it has none, as from a folder.

    None if the copy would have more than ``most`` parameters, or its code does not allow a copy.
    """
    try:
        short = one_of_each_kind(model, kinds_of(model))
        if sum(parameter.numel() for parameter in short.parameters()) > most:
            return None
        made = copy.deepcopy(short)
    except Exception:  # raised by the model's own code
        return None
    generator = torch.Generator().manual_seed(0)
    drawn: dict[int, torch.nn.Parameter] = {}
    for parameter in made.parameters():
        if parameter.is_meta:
            drawn[id(parameter)] = torch.nn.Parameter(_drawn(parameter, generator), parameter.requires_grad)
    for module in made.modules():
        for name, own in module._parameters.items():
            module._parameters[name] = drawn.get(id(own), own)
    return made.float().eval()


def _drawn(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random weights that keep numbers in a usual range: matrices that are no amplifiers, vectors near one."""
    if not like.is_floating_point():
        return torch.zeros(like.shape, dtype=like.dtype)
    values = torch.randn(like.shape, generator=generator)
    return values / max(like.shape[-1], 1) ** 0.5 if like.dim() > 1 else 1 + 0.1 * values
