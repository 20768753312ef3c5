"""Modules of a model: what one holds beside what torch keeps on it, plain values, and the layers as units."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from modular_converter.parallel.torch_private import composable_registry, composable_state


# Hooks, registers and what `fully_shard` keeps, which have methods of their own; not `training`, the mode of a module.
OF_TORCH = frozenset(vars(torch.nn.Module())) - {"training"} | {
    "_compiled_call_impl",
    "_is_hf_initialized",
    composable_registry,
    composable_state,
}
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


def own_attributes(module: torch.nn.Module) -> dict[str, Any]:
    """Name -> value of the attributes that a module's own code or its caller has set, and of its mode ``training``."""
    return {name: value for name, value in vars(module).items() if name not in OF_TORCH}


def is_plain(value: Any) -> bool:
    """Whether a value has nothing inside that can change, and means the same in each process."""
    return type(value) in PLAIN_TYPES or type(value) in (tuple, frozenset) and all(map(is_plain, value))


def is_same_value(old: Any, new: Any) -> bool:
    """Whether two values mean the same: one object, or plain values that are equal or both no numbers (NaN)."""
    if old is new:
        return True
    alike = type(old) is type(new) and is_plain(old) and is_plain(new)
    return alike and bool(old == new or old != old and new != new)


def memory_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor on the CPU, as they are now; none where its storage was freed.

    The tensor must stay, and its storage where it is. ``tensor.numpy()`` would forbid for ever to resize the storage, which
    sharded weights and a caller's own code do.
    """
    size, start = tensor.numel() * tensor.element_size(), tensor.storage_offset() * tensor.element_size()
    if not size or start + size > tensor.untyped_storage().nbytes():
        return memoryview(b"")
    return memoryview((ctypes.c_ubyte * size).from_address(tensor.data_ptr())).cast("B")


def bytes_of(tensor: torch.Tensor) -> bytes:
    """The numbers of a dense tensor on any device."""
    here = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    return memory_of(here).tobytes()


def own_layers(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The layers of the outermost lists whose weights no other module has."""
    users = _users(model)
    for layer in outermost_layers(model):
        inside = _users(layer)
        if inside and all(users[key] == count for key, count in inside.items()):
            yield layer


def _users(model: torch.nn.Module) -> Counter[int]:
    """Identity of a parameter -> the number of modules that have it."""
    return Counter(id(one) for module in model.modules() for one in module._parameters.values() if one is not None)


def outermost_layers(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The members of the outermost lists of layers."""
    is_list = isinstance(module, torch.nn.ModuleList) and _is_container(module)
    for child in module.children():
        if is_list and not _is_container(child):
            yield child
        else:
            yield from outermost_layers(child)


def _is_container(module: torch.nn.Module) -> bool:
    """Whether a module is a list or dict without a forward: ``fully_shard`` gathers weights around forwards."""
    kinds = (torch.nn.ModuleList, torch.nn.ModuleDict)
    return isinstance(module, kinds) and type(module).forward is torch.nn.Module.forward


def recompute_layers(model: Any) -> None:
    """Let each layer of a model keep only its inputs, and recompute the rest in the backward."""
    # Newer releases of transformers warn of the older name.
    usual = getattr(model, "activation_checkpointing_enable", None)
    (usual or model.gradient_checkpointing_enable)({"use_reentrant": False})
    config: Any = getattr(model, "config", None)
    if getattr(config, "use_cache", None):
        config.use_cache = False


def is_of_library(model: Any) -> bool:
    """Whether a model has a configuration of transformers, of which a small instance can be built."""
    return hasattr(getattr(model, "config", None), "model_type")
