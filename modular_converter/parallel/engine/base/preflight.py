"""Checks before a process starts: devices, weights, the plan's text and its fit; methods that a sharded model refuses."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import psutil
import torch
from torch.nn.parameter import is_lazy

from modular_converter.check.cache.store import digest
from modular_converter.parallel.choice.fit import fit
from modular_converter.parallel.choice.kept_answers import kept_answer
from modular_converter.parallel.choice.skeleton import META, Skeleton, assemble_model
from modular_converter.parallel.errors import ApplyError, PlanError, PlanFormatError
from modular_converter.parallel.int8 import SCHEME
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.shard.apply import apply
from modular_converter.parallel.shard.collectives import FakeGroup


_WRAPPER = "OptimizedModule"  # its import takes a second


def uncompiled(model: Any) -> Any:
    """The model inside ``torch.compile``'s wrapper; anything else unchanged.

    Raises ``ApplyError`` if a module inside the model is wrapped: its weights have other names.
    """
    if type(model).__name__ == _WRAPPER:
        model = model._orig_mod
    inside = model.named_modules() if isinstance(model, torch.nn.Module) else ()
    wrapped = next((path for path, module in inside if type(module).__name__ == _WRAPPER), None)
    if wrapped is not None:
        raise ApplyError(f"{wrapped} is compiled: give the model the module itself ({wrapped}._orig_mod)")
    return model


_OF_PROCESS = 1 << 28
"""Bytes of a process that has imported torch and transformers, at least."""


def devices_for(number: int, device: str | None) -> tuple[str, ...]:
    """The device name of each rank.

    Args:
        device: ``cpu`` or ``cuda``; if None, GPUs if there are any.

    Raises ``ApplyError`` if there are too few GPUs or too little memory, or ``number`` is less than 1.
    """
    if number < 1:
        raise ApplyError(f"num_gpus={number}: at least one device is needed")
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (device or ("cuda" if found else "cpu")) == "cpu":
        most = max(psutil.virtual_memory().available // _OF_PROCESS, 1)
        if number > most:
            raise ApplyError(f"num_gpus={number}: the free memory of this machine is enough for {most} CPU processes")
        return ("cpu",) * number
    if number > found:
        cure = f"the largest number that works is {found}" + ("" if found else '; device="cpu" starts CPU processes')
        raise ApplyError(f"num_gpus={number}, but this machine has {found}; {cure}")
    return tuple(f"cuda:{n}" for n in range(number))


def check_home(model: torch.nn.Module) -> None:
    """Raise ``ApplyError`` unless all weights are on the CPU."""
    places = sorted({tensor.device.type for tensor in (*model.parameters(), *model.buffers())} - {"cpu"})
    if "meta" in places:
        raise ApplyError("the model has no weights (meta device); load them first, or was it parallelized before?")
    if places:
        raise ApplyError(f"the model is on {places[0]} already; call parallelize first, or move it back with .cpu()")


def check_text(plan: Plan) -> None:
    """Raise ``ApplyError`` unless the plan's text, which is sent to the ranks, is a plan."""
    try:
        Plan.parse(str(plan))
    except (PlanFormatError, ValueError) as error:
        raise ApplyError(f"the plan cannot be sent to other processes as text: {error}") from error


def check_fit(skeleton: Skeleton, plan: Plan, size: int) -> tuple[Plan, dict[int, Piece]]:
    """The plan as it fits, and the split of each item, by number.

    Raises ``ApplyError`` if the plan does not fit the model on ``size`` ranks.
    """
    found = fit(skeleton, plan, size)
    named = enumerate(skeleton.items)
    return found.plan, {n: found.pieces[i.name] for n, i in named if i.parameter and i.name in found.pieces}


def kept_fit(model: torch.nn.Module, skeleton: Skeleton, plan: Plan, size: int) -> tuple[Plan, dict[int, Piece]]:
    """``check_fit``; the plan that fits is kept for the next start, since trials without data take a second.

    Args:
        skeleton: of the model.
    """
    kinds = digest(repr([(item.name, item.kept) for item in skeleton.items]).encode())
    question = f"fit over {size} with types {kinds} of\n{plan}"
    found = Plan.parse(kept_answer(model, question, lambda: str(check_fit(skeleton, plan, size)[0])))
    pieces = apply(assemble_model(skeleton, META)[0], found, FakeGroup(size)).resolution.pieces
    named = enumerate(skeleton.items)
    return found, {n: pieces[item.name] for n, item in named if item.parameter and item.name in pieces}


# Methods of torch and transformers that read or change weights or modules: the other ranks would not see the change.
CHANGE_WEIGHTS = (
    "add_adapter",
    "delete_adapter",
    "disable_adapters",
    "enable_adapters",
    "load_adapter",
    "load_state_dict",
    "requires_grad_",
    "resize_position_embeddings",
    "resize_token_embeddings",
    "set_adapter",
    "set_attn_implementation",
    "set_input_embeddings",
    "set_output_embeddings",
)


def refusals(
    own: type[Any], names: tuple[str, ...], kind: type[PlanError], text: str
) -> dict[str, Callable[..., Any]]:
    """Methods that raise, in place of the methods of a class with these names.

    Args:
        kind: of the error.
        text: of the error; ``{name}`` in it becomes the method's name.
    """
    return {name: _refusal(getattr(own, name), kind, text.format(name=name)) for name in names if hasattr(own, name)}


def _refusal(own: Callable[..., Any], kind: type[PlanError], text: str) -> Callable[..., Any]:
    @functools.wraps(own)
    def refused(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise kind(text)

    return refused


def refuse(kind: type[PlanError], text: str, *args: Any, **kwargs: Any) -> Any:
    """Raise the error; for a partial function that an object has in place of a method."""
    raise kind(text)


_OTHER = "load the weights from before they were quantised"
_AT_LOAD = "load it with from_pretrained(folder, quantization_config={kind}(dequantize=True)), save it, and load that"
# The library's way to dequantise, by the name of the scheme in `quantization_config`.
REMEDIES = {
    "bitsandbytes": "call model.dequantize() after from_pretrained, and save it",
    "compressed-tensors": _AT_LOAD.format(kind="CompressedTensorsConfig"),
    "fp8": _AT_LOAD.format(kind="FineGrainedFP8Config"),
    "higgs": "call model.dequantize() after from_pretrained, and save it",
    "metal": _AT_LOAD.format(kind="MetalConfig"),
    "mxfp4": _AT_LOAD.format(kind="Mxfp4Config"),
    SCHEME: "load it with from_pretrained, and give the model to parallelize: int8 weights can be cut",
}


def scheme_of(config: Any) -> str:
    """The name of the quantisation scheme of a model's weights; empty without one."""
    found = getattr(config, "quantization_config", None)
    if not found:
        return ""
    name = found.get("quant_method") if isinstance(found, dict) else getattr(found, "quant_method", None)
    if name is None and isinstance(found, dict):  # folders of early versions
        name = "bitsandbytes" if found.get("load_in_8bit") or found.get("load_in_4bit") else None
    return str(getattr(name, "value", name) or "an unnamed scheme")


def refuse_quantised(config: Any, name: str, loaded: bool = False) -> None:
    """Raise ``ApplyError`` for a model whose weights are packed: a plan would cut them without their scales.

    Args:
        name: of the model, for the message.
        loaded: whether the weights are in memory, where weights of torchao can be cut.
    """
    names = getattr(type(config), "sub_configs", None) or ()
    for part in (config, *(getattr(config, name, None) for name in names)):
        scheme = scheme_of(part)
        if scheme and not (loaded and scheme == SCHEME):
            remedy = REMEDIES.get(scheme, _OTHER)
            raise ApplyError(
                f"{name}: its weights are quantised ({scheme}), packed with scales that a plan does not cut; {remedy}"
            )


def refuse_narrow(model: torch.nn.Module) -> None:
    """Raise ``ApplyError`` for weights and buffers that processes cannot exchange: without sizes, or in floating point of 8 bits."""
    for name, one in (*model.named_parameters(), *model.named_buffers()):
        if is_lazy(one):
            raise ApplyError(
                f"{name} is of a lazy module that has run no forward yet, and has no size: call the model once before"
            )
        if one.is_floating_point() and one.element_size() == 1:
            raise ApplyError(
                f"{name} is of {one.dtype}: processes exchange and sum no numbers of this type; convert the model before, as "
                "model.to(torch.bfloat16) does, and multiply by scales of your own meanwhile"
            )
