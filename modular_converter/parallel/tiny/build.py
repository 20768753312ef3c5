"""Build a small model of a type or class, seeded, on the CPU, and the inputs for one forward of it."""

from __future__ import annotations

import dataclasses
import importlib
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from modular_converter.parallel.errors import BuildError, UnknownModel
from modular_converter.parallel.tiny.inputs import make_inputs
from modular_converter.parallel.tiny.shrink import STRATEGIES, shrink
from modular_converter.parallel.tiny.table import OVERRIDES


SEED = 7


@dataclasses.dataclass(frozen=True)
class Small:
    """A small model in eval mode with its inputs.

    Attributes:
        name: model type, or the class path that was asked for.
        strategy: which of the shrinking strategies worked.
        inputs: keyword arguments for one forward.
    """

    name: str
    strategy: str
    model: torch.nn.Module
    inputs: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Target:
    """What to build: a model class and its configuration class, by import path, both picklable."""

    name: str
    model_class: str
    config_class: str

    def load(self) -> tuple[type[Any], type[Any]]:
        """The two classes. Raises ``BuildError`` when a module of them cannot be imported."""
        return _load(self.model_class), _load(self.config_class)


def _load(path: str) -> type[Any]:
    module, _, name = path.rpartition(".")
    try:
        found: type[Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise BuildError(f"{path}: cannot be imported ({error}); install the library that it names") from error
    return found


def target_of(name: str, head: str = "base") -> Target:
    """The target of a model type (``llama``) or of a class path (``package.module.Class``).

    Args:
        name: a model type known to the library, or a dotted path of a model class with ``config_class``.
        head: ``base`` for the base model, ``causal`` for the one with a language-model head.

    Raises:
        UnknownModel: the type is not known; the nearest names are listed.
        BuildError: the type has no model of this head.
    """
    if "." in name:
        config = getattr(_load(name), "config_class", None)
        if config is None:
            raise BuildError(f"{name}: has no config_class; give a model class, not a layer")
        return Target(name, name, f"{config.__module__}.{config.__qualname__}")
    from transformers.models.auto import configuration_auto, modeling_auto

    names = configuration_auto.CONFIG_MAPPING_NAMES
    if name not in names:
        raise UnknownModel(name, names)
    table = {
        "base": modeling_auto.MODEL_MAPPING_NAMES,
        "causal": modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    }[head]
    found = table.get(name)
    if found is None:
        raise BuildError(f"{name}: the library lists no {head} model for this type; give a class path instead")
    class_name = found[0] if isinstance(found, (tuple, list)) else found
    config_name = names[name]
    module = _module_with(name, config_name, "configuration")
    return Target(name, f"{_module_with(name, class_name, 'modeling')}.{class_name}", f"{module}.{config_name}")


def _module_with(name: str, class_name: str, kind: str) -> str:
    import transformers
    from transformers.models.auto.configuration_auto import model_type_to_module_name

    folder = model_type_to_module_name(name)
    module = f"transformers.models.{folder}"
    try:
        if hasattr(importlib.import_module(module), class_name):
            found = getattr(importlib.import_module(module), class_name)
        else:
            found = getattr(transformers, class_name)
    except (ImportError, AttributeError) as error:
        raise BuildError(f"{name}: {class_name} cannot be imported ({error})") from error
    return str(found.__module__)


def build(target: Target, overrides: Mapping[str, Any] | None = None, strategy: str | None = None) -> Small:
    """A small model that ran one forward.

    Args:
        target: what to build.
        overrides: configuration values that win over rules and table.
        strategy: only this one, instead of the first that works.

    Raises:
        BuildError: no strategy gave a model that runs; the message has one reason a strategy.
    """
    model_class, config_class = target.load()
    table = {**OVERRIDES.get(getattr(config_class, "model_type", ""), {}), **(overrides or {})}
    reasons = []
    for kind in [strategy] if strategy else STRATEGIES:
        try:
            return _attempt(target, model_class, config_class, kind, table)
        except Exception as error:  # anything a model's own code raises is a reason, not a crash
            reasons.append(f"{kind}: {_one_line(error)}")
    raise BuildError(f"{target.name}: cannot be built small and run\n  " + "\n  ".join(reasons) + _advice(reasons))


def _attempt(
    target: Target, model_class: type[Any], config_class: type[Any], strategy: str, overrides: Mapping[str, Any]
) -> Small:
    config = shrink(config_class, strategy, overrides)
    limit = 3e7
    torch.manual_seed(SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.device("meta"):
            if sum(p.numel() for p in model_class(config).parameters()) > limit:
                raise BuildError("more than 30 M parameters; give smaller widths")
        model: torch.nn.Module = model_class(config).eval()
        _randomise(model)
        inputs = make_inputs(model)
        with torch.no_grad():
            model(**inputs)
    return Small(target.name, strategy, model, inputs)


def _randomise(model: torch.nn.Module) -> None:
    """Weights of a size that keeps every layer's effect visible: zeros and tiny inits would hide a wrong plan."""
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for parameter in model.parameters():
            if not parameter.is_floating_point():
                continue
            if parameter.dim() < 2:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
            else:
                scale = 1.0 / max(parameter.shape[-1], 1) ** 0.5
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)


def _one_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:200]}"


def _advice(reasons: list[str]) -> str:
    joined = " ".join(reasons)
    if "No module named" in joined or "requires the" in joined.lower() or "ImportError" in joined:
        return "\n  it needs a library that is not installed; install the one named above"
    return (
        "\n  give configuration values with --set field=value (for example the width or the list that is named above)"
    )
