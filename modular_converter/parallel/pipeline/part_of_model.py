"""Copies of a model with a part of its weights, or without weights."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch


def part_of(model: torch.nn.Module, absent: Sequence[str]) -> torch.nn.Module:
    """A copy of the model that shares all weights, except the weights of absent modules.

    An absent module keeps its attributes, which callers may read; its weights become plain tensors without data.
    """
    gone = {id(part) for path in absent for part in model.get_submodule(path).modules()}
    held: dict[int, Any] = {}
    lost: dict[int, Any] = {}
    for module in model.modules():
        target = lost if id(module) in gone else held
        target.update({id(t): t for t in (*module._parameters.values(), *module._buffers.values()) if t is not None})
    bare = {key: without_data(value) for key, value in lost.items() if key not in held}
    local = copy.deepcopy(model, {**bare, **held})
    for path in absent:
        for part in local.get_submodule(path).modules():
            for store in (part._parameters, part._buffers):
                part.__dict__.update(store)
                store.clear()
    return local


def do_not_recompute(module: torch.nn.Module) -> None:
    """Turn activation checkpointing off for a module and its parts."""
    for part in module.modules():
        if getattr(part, "gradient_checkpointing", False):
            part.gradient_checkpointing = False  # type: ignore[assignment]


def copy_without_data(model: torch.nn.Module) -> torch.nn.Module:
    """A copy of the model on the meta device."""
    memo: dict[int, Any] = {}
    for module in model.modules():
        for value in (*module._parameters.values(), *module._buffers.values()):
            if value is not None and id(value) not in memo:
                memo[id(value)] = without_data(value)
    return copy.deepcopy(model, memo)


def without_data(value: torch.Tensor) -> torch.Tensor:
    """A parameter or buffer on the meta device."""
    bare = value.detach().to("meta")
    return torch.nn.Parameter(bare, value.requires_grad) if isinstance(value, torch.nn.Parameter) else bare


def remember_type(given: torch.nn.Module, absent: torch.nn.Module, place: list[torch.device]) -> None:
    """Give models within an absent part their type and device, which they would read from weights."""
    for part, bare in zip(given.modules(), absent.modules()):
        kind: Any = type(part)
        if isinstance(getattr(kind, "dtype", None), property) and isinstance(getattr(kind, "device", None), property):
            number = next((p.dtype for p in part.parameters() if p.is_floating_point()), torch.get_default_dtype())
            told = {"dtype": number, "device": property(lambda _: place[0]), "__module__": kind.__module__}
            bare.__class__ = type(kind.__name__, (kind,), {**told, "__qualname__": kind.__qualname__})
