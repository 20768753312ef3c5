"""What fused modules have in common: they go back to their own forward when one of their attributes is set."""

from __future__ import annotations

from typing import Any

import torch

from modular_converter.parallel.module_state import OF_TORCH


# Attributes of every module, on which no trial depends: it has its own tensors, eval mode and no hooks.
MACHINERY = OF_TORCH | {"training"}


class Fused(torch.nn.Module):
    """Base of fused forwards, put before a module's class; ``_fused`` tells whether they still apply."""

    _fused: bool

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in MACHINERY and name not in self._parameters and not self.may_change(name):
            unfuse(self)
        super().__setattr__(name, value)

    def may_change(self, name: str) -> bool:
        """Whether the fused forward reads an attribute at each call."""
        return False


def unfuse(module: torch.nn.Module) -> None:
    """Give a fused module its own forward again, because one of its attributes has changed; nothing for other modules."""
    if "_fused" in module.__dict__:
        module.__dict__["_fused"] = False


def configuration(module: torch.nn.Module) -> tuple[Any, ...] | None:
    """All values, except input and parameters, on which a forward can depend; None if they cannot be hashed."""
    shapes = [(name, None if one is None else one.shape) for name, one in module._parameters.items()]
    plain = sorted((name, value) for name, value in vars(module).items() if name not in MACHINERY)
    key = (type(module), *shapes, *((name, type(value), value) for name, value in plain))
    try:
        hash(key)
    except TypeError:
        return None
    return key
