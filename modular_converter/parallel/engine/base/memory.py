"""The memory in use on a device: the allocator's figures on GPUs, the process's resident bytes on CPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psutil
import torch


def usage(device: torch.device) -> dict[str, int | str]:
    """``allocated`` and ``reserved`` bytes, and a ``summary`` to print."""
    if device.type == "cuda":
        return {
            "allocated": torch.cuda.memory_allocated(device),
            "reserved": torch.cuda.memory_reserved(device),
            "summary": torch.cuda.memory_summary(device, abbreviated=True),
        }
    resident = psutil.Process().memory_info().rss
    return {"allocated": resident, "reserved": resident, "summary": f"resident memory {resident / 2**20:.0f} MiB"}


def print_usage(model: Any, plan: str, figures: Mapping[str, Mapping[str, Any]], verbose: str) -> None:
    """Print the origin of a model's plan, and the memory of each device; with ``"detail"`` the summaries too.

    Args:
        figures: name of a device -> its ``usage``.
    """
    print(f"{type(model).__name__}: {plan}")
    for name, value in figures.items():
        detail = f"\n{value['summary']}" if verbose == "detail" else ""
        print(f"{name}: {value['allocated'] / 2**20:.0f} MiB allocated{detail}")


class MemoryFigures:
    """The methods of a sharded model that return its memory, in bytes by device; on CPUs a process's resident bytes."""

    def _figures(self) -> Mapping[str, Mapping[str, Any]]:
        raise NotImplementedError

    def memory_allocated(self) -> dict[str, int]:
        """Bytes of tensors, by device."""
        return {name: value["allocated"] for name, value in self._figures().items()}

    def memory_reserved(self) -> dict[str, int]:
        """Bytes that the allocator holds, by device."""
        return {name: value["reserved"] for name, value in self._figures().items()}

    memory_cached = memory_reserved
    memory_chached = memory_reserved  # the spelling that parallelformers has
