"""The kinds of layers of a user's model, from one run without data, and a short model with one layer of each kind."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch

from modular_converter.parallel.engine.base.skeleton import Skeleton, assemble_model, dismantle
from modular_converter.parallel.engine.base.without_data import META, guesses, on_meta, tried_without_data
from modular_converter.parallel.plans.patterns import is_inside
from modular_converter.parallel.tiny.inputs import make_inputs
from modular_converter.parallel.trace.graph import Trace
from modular_converter.parallel.trace.layer_kinds import Kind, inner_path, is_layer, layer_kinds, layer_of
from modular_converter.parallel.trace.record import record


# Attributes that may differ from run to run.
_NO_SWITCHES = ("training",)
# Arguments of torch's own modules that decide their arithmetic.
_OPTIONS = ("max_norm",)
# The kinds of the latest models: the choice of a plan and the probe both need them, and 32 layers take 1.3 s each time.
_LATEST: dict[Skeleton, dict[str, Kind]] = {}
_MOST_LATEST = 4


def kinds_of(model: torch.nn.Module) -> dict[str, Kind]:
    """Path of each layer -> its kind, of a run without data; of its modules alone where there is no such run.

    Adapters, quantised layers and others that were put into the model after its construction are seen too.
    """
    found = traced_kinds(model)
    return kinds_by_modules(model) if found is None else {path: kind for path, kind in found.items() if path}


def traced_kinds(model: torch.nn.Module) -> dict[str, Kind] | None:
    """The kinds that one run without data shows; None where the model has no such run.

    The empty path is the code around the layers.
    """
    try:
        skeleton, _ = dismantle(model, lambda name, tensor: tensor.dtype)
        if skeleton not in _LATEST:
            _LATEST[skeleton] = _run_without_data(model, skeleton)
    except Exception:  # errors of the model's own code for inputs that it does not know, or without data
        return None
    found = _LATEST[skeleton]
    for oldest in list(_LATEST)[:-_MOST_LATEST]:
        del _LATEST[oldest]
    return {path: kind | _facts_of(model.get_submodule(path)) if path else kind for path, kind in found.items()}


def _run_without_data(model: torch.nn.Module, skeleton: Skeleton) -> dict[str, Kind]:
    return kinds_of_call(skeleton, make_inputs(model))


def kinds_of_call(skeleton: Skeleton, inputs: Mapping[str, Any]) -> dict[str, Kind]:
    """The kinds that one run with the inputs shows, whose data do not matter. Raises ``TraceError``."""

    def run() -> Trace:
        bare = assemble_model(skeleton, META)[0].eval()
        with guesses():
            return record(bare, {name: on_meta(value) for name, value in inputs.items()})

    return layer_kinds(tried_without_data(run))


def kinds_by_modules(model: torch.nn.Module) -> dict[str, Kind]:
    """The kinds of layers by their modules alone, without a run."""
    return {path: _facts_of(module) for path, module in model.named_modules() if is_layer(path)}


def kinds_of_rest(model: torch.nn.Module) -> dict[str, Kind]:
    """Path -> kind for modules with weights of their own outside of numbered layers: embeddings, heads, last norms."""
    rest = [(path, module) for path, module in model.named_modules() if path and not layer_of(path)]
    return {
        path: _facts_of(module, False) for path, module in rest if next(module.parameters(False), None) is not None
    }


def _facts_of(layer: torch.nn.Module, inside: bool = True) -> Kind:
    """Classes, weights and switches of a layer's modules: the same operations differ by switches, as under other masks."""
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
    """The model with the first layer of each kind; layers keep their numbers, and all modules inside are the model's.

    Where the code counts layers, so that a layer is of another kind in the short model, all layers before it stay too.
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
    """A copy of a module on the way to a list, with copied lists; anything else as it is."""
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
