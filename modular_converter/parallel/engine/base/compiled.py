"""Models that ``torch.compile`` has wrapped."""

from __future__ import annotations

from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError


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
