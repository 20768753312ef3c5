"""The adapters of peft in a model, and their copies in a small instance of the model."""

from __future__ import annotations

import copy
import pickle
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.text_checks import SomeLayers


# The rank of adapters in a small instance: no number of devices divides it, so that no plan shards it.
_RANK = 3
# Settings of a configuration for the layers, size and start values of adapters -> their values for a small instance.
_OF_THE_MODEL: dict[str, Any] = {
    "exclude_modules": None,
    "layers_to_transform": None,
    "layers_pattern": None,
    "rank_pattern": {},
    "alpha_pattern": {},
    "init_lora_weights": True,
    "loftq_config": {},
    "eva_config": None,
    "corda_config": None,
    "lora_ga_config": None,
    "r": _RANK,
    "lora_alpha": 2 * _RANK,
    "inference_mode": False,
}
# Settings of adapters that need more than a layer's input, weights and output -> the reason to refuse them.
_REFUSED = {
    "alora_invocation_tokens": "counts the tokens of a prompt outside of the model",
    "arrow_config": "chooses among adapters outside of the layers",
    "layer_replication": "repeats layers of the model",
    "megatron_config": "has parallel layers of its own",
    "monteclora_config": "draws random weights in each process while it trains",
    "target_parameters": "changes a parameter instead of a layer",
    "trainable_token_indices": "exchanges rows of an embedding",
    "velora_config": "computes gradients from groups of a layer's inputs",
}
_MERGE = "merge the adapters first: model = model.merge_and_unload()"


@dataclass(frozen=True)
class Adapter:
    """An adapter: its name, its configuration for a small instance (pickled), and its layers in the model."""

    name: str
    config: bytes
    layers: SomeLayers


@dataclass(frozen=True)
class Adapters:
    """All adapters of a model.

    Attributes:
        active: the names of the adapters in use.
        merged: the names of the adapters that were added to the weights of their layers.
        enabled: whether adapters are switched on.
    """

    adapters: tuple[Adapter, ...]
    active: tuple[str, ...]
    merged: tuple[str, ...]
    enabled: bool

    def apply_to(self, model: torch.nn.Module) -> None:
        """Put the adapters into a small instance, in place; all its floating weights require gradients then."""
        from peft import inject_adapter_in_model  # takes seconds to import
        from peft.utils.other import AuxiliaryTrainingWrapper

        for adapter in self.adapters:
            if paths := adapter.layers.same_in(model):
                config = pickle.loads(adapter.config)
                config.target_modules = "|".join(map(re.escape, paths))
                inject_adapter_in_model(config, model, adapter.name)
        for _, layer in _layers(model):
            layer.set_adapter(list(self.active))
            if self.merged:
                layer.merge(adapter_names=list(self.merged))
            layer.enable_adapters(self.enabled)
        for module in model.modules():
            if isinstance(
                module, AuxiliaryTrainingWrapper
            ):  # of modules_to_save: without this, the last adapter would be in use
                module.set_adapter([name for name in self.active if name in module._get_available_adapters()])
                module.enable_adapters(self.enabled)
        for weight in model.parameters():
            weight.requires_grad_(weight.is_floating_point())
        model.eval()


def has_adapters(model: torch.nn.Module) -> bool:
    """Whether a model has layers of peft."""
    return "peft" in sys.modules and bool(_layers(model))


def adapters_of(model: Any) -> Adapters | None:
    """The adapters in a model; None if it has none.

    Raises ``ApplyError`` for adapters of a kind that no small instance can have, or with layers in different states.
    """
    if not has_adapters(model):
        return None
    layers = _layers(model)
    configs = dict(model.__dict__.get("peft_config") or {})
    made = tuple(_adapter(name, config, model, layers) for name, config in configs.items())
    active = _agreed("active adapters", (tuple(layer.active_adapters) for _, layer in layers))
    enabled = _agreed("switches", ((not layer.disable_adapters,) for _, layer in layers))
    merged = tuple(dict.fromkeys(name for _, layer in layers for name in layer.merged_adapters))
    for path, layer in layers:
        if set(layer.merged_adapters) != set(merged) & layer._get_available_adapters():
            raise ApplyError(f"the adapters {', '.join(merged)} are merged in some layers and not in {path}; {_MERGE}")
    if merged and not all(enabled):
        raise ApplyError(
            f"the adapters {', '.join(merged)} are merged and switched off, so that the next call would take them out of "
            "the weights on the devices alone; call model.unmerge_adapter() first"
        )
    if not {*active, *merged} <= set(configs):
        raise ApplyError(
            f"the adapters {', '.join(active)} have no configuration in the model's peft_config; {_MERGE}"
        )
    return Adapters(made, active, merged, all(enabled))


def _layers(model: torch.nn.Module) -> list[tuple[str, Any]]:
    """The layers of peft, each of which holds another layer and its adapters, with their paths."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    return [(path, module) for path, module in model.named_modules() if isinstance(module, BaseTunerLayer)]


def _adapter(name: str, config: Any, model: torch.nn.Module, layers: Sequence[tuple[str, Any]]) -> Adapter:
    kind = getattr(config.peft_type, "value", config.peft_type)
    if kind != "LORA":
        raise ApplyError(f"the adapter {name} is of the kind {kind}, and plans are derived for LORA; {_MERGE}")
    for field, why in _REFUSED.items():
        if getattr(config, field, None):
            raise ApplyError(f"the adapter {name} has {field}, which {why}: no plan can be derived for it; {_MERGE}")
    small = copy.deepcopy(config)
    for field, value in _OF_THE_MODEL.items():
        if hasattr(small, field):
            setattr(small, field, copy.copy(value))
    small.target_modules = None
    if isinstance(small.modules_to_save, (set, list, tuple)):
        small.modules_to_save = sorted(small.modules_to_save)
    paths = tuple(path for path, layer in layers if name in layer._get_available_adapters())
    return Adapter(name, pickle.dumps(small), SomeLayers.of(paths, model))


def _agreed(what: str, found: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    values = list(dict.fromkeys(found))
    if len(values) > 1:
        raise ApplyError(f"the layers differ in their {what} ({values[0]}, {values[1]}): set the same for all of them")
    return values[0] if values else ()
