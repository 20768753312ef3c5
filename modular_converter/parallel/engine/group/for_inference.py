"""The form of a sharded model for inference in a process group: plain parameters and direct collectives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from modular_converter.parallel.engine.inference.fused_norms import fuse_norms
from modular_converter.parallel.engine.inference.plain_forwards import DirectGroup, make_plain
from modular_converter.parallel.engine.inference.static_cache import choose_cache
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.shard.apply import Applied


_NEEDS_GRADIENTS = "this model has its form for inference; leave inference= and compile= out to train it"
_TRAINING = (
    "clip_grad_norm_",
    "load_full_state_dict",
    "unshard",
    "gradient_checkpointing_enable",
    "save_checkpoint",
    "load_checkpoint",
)


def make_inference(applied: Applied, group: DirectGroup, compile: bool) -> None:
    """Turn a sharded model into its form for inference, in place."""
    make_plain(applied, group)
    fuse_norms(applied.model)
    applied.model.eval().requires_grad_(False)
    if compile:
        choose_cache(applied.model, {})


def without_gradients(own: Callable[..., Any], compile: bool) -> Callable[..., Any]:
    """A method without gradients; if compiled, ``generate`` has a static cache unless a cache is given."""

    @functools.wraps(own)
    def made(self: Any, *args: Any, **kwargs: Any) -> Any:
        if compile:
            choose_cache(self, kwargs)
        with torch.no_grad():
            return own(self, *args, **kwargs)

    return made


def no_training() -> dict[str, Callable[..., Any]]:
    """Replacements that refuse training: methods that need gradients or roles, and ``train`` except from ``eval``."""

    def refused(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise ApplyError(_NEEDS_GRADIENTS)

    def train(self: Any, mode: bool = True) -> Any:
        if mode:
            raise ApplyError(_NEEDS_GRADIENTS)
        return self

    found: dict[str, Callable[..., Any]] = dict.fromkeys(_TRAINING, refused)
    return found | {"train": train}
