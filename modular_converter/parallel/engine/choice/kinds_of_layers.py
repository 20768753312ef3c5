"""The model in hand, run once without data: the kinds of its layers, and a short model with one layer of each kind."""

from __future__ import annotations

import copy

import torch

from modular_converter.parallel.engine.base.skeleton import assemble_model, dismantle
from modular_converter.parallel.engine.base.without_data import META, guesses, on_meta
from modular_converter.parallel.tiny.inputs import make_inputs
from modular_converter.parallel.trace.layer_kinds import Kind, is_layer, layer_kinds, layer_of
from modular_converter.parallel.trace.record import record


def kinds_of(model: torch.nn.Module) -> dict[str, Kind]:
    """Path of each layer -> its kind, of a run without data; of its modules' classes alone where there is no such run.

    Adapters, quantised layers and others that were put into the model after its construction are seen too.
    """
    skeleton, _ = dismantle(model, lambda name, tensor: tensor.dtype)
    bare = assemble_model(skeleton, META)[0].eval()
    try:
        inputs = {name: on_meta(value) for name, value in make_inputs(model).items()}
        with guesses():
            found = layer_kinds(record(bare, inputs))
        return {path: kind | _settings(model.get_submodule(path)) for path, kind in found.items()}
    except Exception:  # what the model's own code raises for inputs that it does not know, or without data
        return _by_classes(model)


def _by_classes(model: torch.nn.Module) -> dict[str, Kind]:
    found: dict[str, set[tuple[str, ...]]] = {path: set() for path, _ in model.named_modules() if is_layer(path)}
    for path, module in model.named_modules():
        layer = layer_of(path)
        if layer:
            found[layer].add((path[len(layer) :], type(module).__name__))
    return {path: frozenset(facts) | _settings(model.get_submodule(path)) for path, facts in found.items()}


def _settings(layer: torch.nn.Module) -> Kind:
    """The switches of a layer's modules: the same operations differ by them, such as under another mask."""
    return frozenset(
        ("setting", path, name, str(value))
        for path, module in layer.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, (bool, str)) and not name.startswith("_")
    )


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
    if not any(name == path or not path or name.startswith(f"{path}.") for name in lists):
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
