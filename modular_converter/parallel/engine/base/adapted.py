"""Models in a wrapper of peft: the inner model is sharded, and the wrapper keeps calling it."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from modular_converter.parallel.engine.base.preflight import refuse
from modular_converter.parallel.errors import ApplyError, PlanError
from modular_converter.parallel.tiny.adapters import has_adapters


# Methods of peft's modules that change weights or adapters, or choose the adapters that compute.
_CHANGES = (
    "add_adapter",
    "add_weighted_adapter",
    "delete_adapter",
    "disable_adapter",
    "disable_adapter_layers",
    "enable_adapter_layers",
    "enable_adapters",
    "inject_adapter",
    "load_adapter",
    "load_state_dict",
    "merge",
    "merge_adapter",
    "merge_and_unload",
    "scale_layer",
    "set_adapter",
    "set_base_weight",
    "set_requires_grad",
    "set_scale",
    "subtract_mutated_init",
    "unload",
    "unmerge",
    "unmerge_adapter",
    "unscale_layer",
    "update_layer",
)
_REFUSED = "_refused_of_peft"
# The attribute of a wrapped model that holds its wrapper.
AROUND = "_around"


def is_wrapper(model: Any) -> bool:
    """Whether a model is of a class of peft, with another model inside."""
    return any(kind.__module__.partition(".")[0] == "peft" for kind in type(model).__mro__)


def base_of(model: Any) -> Any:
    """The model to shard: the model inside peft's wrapper, or the given model if there is no wrapper.

    Raises ``ApplyError`` if the wrapper has arithmetic of its own, such as learnt prompt tokens.
    """
    if not is_wrapper(model):
        return model
    from peft.tuners.tuners_utils import (
        BaseTuner,  # other tuners, such as adaption prompts, put a forward around the model
    )

    tuner = model._modules.get("base_model")
    base = tuner._modules.get("model") if isinstance(tuner, BaseTuner) else None
    if base is None or getattr(model, "_is_prompt_learning", True):
        raise ApplyError(
            f"{type(model).__name__} of peft: plans are derived for adapters inside of layers (LoraConfig); use the "
            "model without this wrapper, or merge its adapters: model = model.merge_and_unload()"
        )
    return base


def path_of_base(wrapper: torch.nn.Module, base: torch.nn.Module) -> str:
    """The path of the wrapped model in its wrapper."""
    found: str = next(path for path, module in wrapper.named_modules() if module is base)
    return found


def keep_adapters(model: torch.nn.Module, kind: type[PlanError], text: str) -> None:
    """Make the modules of peft in a model refuse methods that change adapters.

    Args:
        kind: of the error.
        text: of the error; ``{name}`` in it becomes the method's name.
    """
    if "peft" not in sys.modules:
        return
    for module in model.modules():
        if is_wrapper(module) and _REFUSED not in module.__dict__:
            found = [name for name in _CHANGES if callable(getattr(type(module), name, None))]
            module.__dict__[_REFUSED] = found
            module.__dict__.update({name: functools.partial(refuse, kind, text.format(name=name)) for name in found})


def wrap(wrapper: Any, base: torch.nn.Module, methods: type[Any], kind: type[PlanError], text: str) -> None:
    """Give the wrapper of a sharded model the methods that it needs, until ``let_go``.

    Args:
        methods: a class whose methods come before those of the wrapper's own class.
        kind, text: see ``keep_adapters``.
    """
    keep_adapters(wrapper, kind, text)
    own = type(wrapper)
    wrapper.__class__ = type(own.__name__, (methods, own), {"__module__": own.__module__, "__doc__": own.__doc__})
    base.__dict__[AROUND] = [(wrapper, own)]  # in a list, so that torch does not register the wrapper as a child


def let_go(base: torch.nn.Module) -> None:
    """Undo ``wrap`` and ``keep_adapters`` for a model that has come back."""
    for wrapper, own in base.__dict__.pop(AROUND, ()):
        wrapper.__class__ = own
        _change_again(wrapper)
    _change_again(base)


def scales_of(model: torch.nn.Module) -> list[tuple[Any, dict[str, float]]]:
    """The layers of peft in a model, with the scales of their adapters as they are now."""
    if "peft" not in sys.modules:
        return []
    scales = ((layer, layer.__dict__.get("scaling")) for layer in model.modules() if is_wrapper(layer))
    return [(layer, dict(scale)) for layer, scale in scales if isinstance(scale, dict)]


def refuse_new_scales(known: list[tuple[Any, dict[str, float]]]) -> None:
    """Raise ``PlanError`` if a scale was set since ``scales_of``. peft calls no method then that could refuse it."""
    if any(layer.scaling != before for layer, before in known):
        raise PlanError(
            "the scale of an adapter was changed, which would not reach the ranks; take the model back with .cpu(), "
            "change it, and parallelize it again"
        )


def _change_again(model: torch.nn.Module) -> None:
    for module in model.modules():
        for name in module.__dict__.pop(_REFUSED, ()):
            del module.__dict__[name]


def refuse_saving_adapters(model: torch.nn.Module, instead: str) -> None:
    """Raise ``ApplyError`` for a model with adapters in its layers: its weights have other names than in a saved model."""
    if has_adapters(model):
        raise ApplyError(
            "the layers of this model hold adapters, so its files would not be those of a saved model; save the adapters with "
            f"save_pretrained of peft's wrapper, or {instead} and save it then"
        )


def state_of_adapters(
    wrapper: Any, whole: Mapping[str, torch.Tensor], fetch: Callable[[str], torch.Tensor], **how: Any
) -> dict[str, torch.Tensor]:
    """The state of a wrapper for peft's ``save_pretrained``: saved weights with data, all others without.

    Args:
        whole: name -> a tensor of the whole shape and type, for the wrapper's whole state.
        fetch: name -> the whole tensor on the CPU; all ranks call it in the same order.
        how: the arguments of ``save_pretrained``.
    """
    from peft import get_peft_model_state_dict

    empty = {name: torch.empty_like(tensor, device="meta") for name, tensor in whole.items()}
    names = {id(tensor): name for name, tensor in empty.items()}
    layers = how.get("save_embedding_layers", "auto")
    for adapter in how.get("selected_adapters") or list(wrapper.peft_config):
        for tensor in get_peft_model_state_dict(wrapper, dict(empty), adapter, save_embedding_layers=layers).values():
            if tensor.is_meta and id(tensor) in names:
                empty[names[id(tensor)]] = fetch(names[id(tensor)])
    return empty
