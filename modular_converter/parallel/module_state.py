"""What a module holds beside what torch keeps on each module, and which values are plain."""

from __future__ import annotations

from typing import Any

import torch


# Hooks and registers, which have methods of their own; not `training`, the module's mode.
OF_TORCH = frozenset(vars(torch.nn.Module())) - {"training"} | {"_compiled_call_impl", "_is_hf_initialized"}
PLAIN_TYPES = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)


def own_attributes(module: torch.nn.Module) -> dict[str, Any]:
    """Name -> value of the attributes that a module's own code or its caller has set, and of its mode ``training``."""
    return {name: value for name, value in vars(module).items() if name not in OF_TORCH}


def is_plain(value: Any) -> bool:
    """Whether a value has nothing inside that can change, and means the same in each process."""
    return type(value) in PLAIN_TYPES or type(value) in (tuple, frozenset) and all(map(is_plain, value))
