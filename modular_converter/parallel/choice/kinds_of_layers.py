"""The kinds of layers in a user's model, from one run without data, and a short model with one layer of each kind."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch

from modular_converter.parallel.choice.skeleton import Skeleton, assemble_model, skeleton_of
from modular_converter.parallel.choice.trial_inputs import inputs_without_data
from modular_converter.parallel.choice.without_data import META, Guesses, on_meta, tried_without_data
from modular_converter.parallel.plans.patterns import is_inside
from modular_converter.parallel.trace.graph import Trace
from modular_converter.parallel.trace.layer_kinds import Kind, inner_path, is_layer, layer_kinds, layer_of
from modular_converter.parallel.trace.record import record


# Switches that do not distinguish kinds.
_NO_SWITCHES = ("training",)
# Arguments of torch's own modules that decide their arithmetic.
_OPTIONS = ("max_norm",)
# The latest results: the choice of a plan and the probe need the same, and 32 layers take 1.3 s.
_LATEST: dict[Skeleton, dict[str, Kind] | None] = {}
_MOST_LATEST = 4


def kinds_of(model: torch.nn.Module) -> dict[str, Kind]:
    """Path of each layer -> its kind: from a run without data, or from its modules alone if that run fails.

    Modules that were put into the model after its construction count, such as adapters and quantised layers.
    """
    found = traced_kinds(model)
    return kinds_by_modules(model) if found is None else {path: kind for path, kind in found.items() if path}


def traced_kinds(model: torch.nn.Module) -> dict[str, Kind] | None:
    """The kinds from a run without data; None if that run fails. The empty path is the code around the layers."""
    try:
        skeleton = skeleton_of(model)
    except Exception:  # raised by the model's own code
        return None
    if skeleton not in _LATEST:
        try:
            _LATEST[skeleton] = kinds_of_call(skeleton, inputs_without_data(skeleton, None))
        except Exception:  # raised by the model's own code for unexpected inputs, or without data
            _LATEST[skeleton] = None
    found = _LATEST[skeleton]
    for oldest in list(_LATEST)[:-_MOST_LATEST]:
        del _LATEST[oldest]
    if found is None:
        return None
    return {path: kind | _facts_of(model.get_submodule(path)) if path else kind for path, kind in found.items()}


def kinds_of_call(
    skeleton: Skeleton, inputs: Mapping[str, Any], change: Callable[[torch.nn.Module], None] | None = None
) -> dict[str, Kind]:
    """The kinds from one run on inputs, whose data do not matter. Raises ``TraceError``.

    Args:
        change: called with the model before it runs.
    """

    def run() -> Trace:
        bare = assemble_model(skeleton, META)[0].eval()
        if change is not None:
            change(bare)
        with Guesses():
            return record(bare, {name: on_meta(value) for name, value in inputs.items()})

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


def one_of_each_kind(model: torch.nn.Module, kinds: dict[str, Kind]) -> torch.nn.Module:
    """A copy of the model with the first layer of each kind; it shares the modules, and layers keep their numbers.

    If a layer has another kind in the copy, because the code counts layers, all layers before the kept ones stay too.
    """
    first: dict[tuple[str, Kind], str] = {}
    for path, kind in kinds.items():
        first.setdefault((path.rpartition(".")[0], kind), path)
    kept = set(first.values())
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
    made = copy.copy(module)
    made.__dict__["_modules"] = inner = dict(module._modules)
    for name, child in module._modules.items():
        below = f"{path}.{name}" if path else name
        if path in lists and isinstance(module, torch.nn.ModuleList):
            if below not in kept:
                del inner[name]
        elif child is not None:
            inner[name] = _copied(child, below, kept, lists)
    return made
