"""The memory in use on a device: the allocator's figures on GPUs, the process's resident bytes on CPUs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any

import psutil
import torch


logger = logging.getLogger(__name__)


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


def print_usage(model: Any, share: float, plan: str, figures: Mapping[str, Mapping[str, Any]], verbose: str) -> None:
    """Print a line with a model's share and the memory of each device; with ``"detail"`` the plan and the summaries, too.

    Args:
        share: the fraction of the weights that a device holds at most.
        plan: its origin.
        figures: name of a device -> its ``usage``.
    """
    used = ", ".join(f"{name} {value['allocated'] / 2**20:.0f}" for name, value in figures.items())
    print(f"{type(model).__name__}: {share:.1%} of the weights on each device; {used} MiB allocated")
    if verbose == "detail":
        print(f"plan: {plan}")
        for name, value in figures.items():
            print(f"{name}: {value['summary']}")


def tell(step: str, verbose: str | None, show: Callable[[str], None] = lambda step: None) -> None:
    """Log what begins, and show it; with ``verbose``, print it on the standard error."""
    logger.info(step)
    show(step)
    if verbose is not None:
        print(step, file=sys.stderr, flush=True)


# The methods of `MemoryFigures`, with the spelling that parallelformers has.
METHODS = ("memory_allocated", "memory_reserved", "memory_cached", "memory_chached")


def without_devices(model: Any) -> None:
    """Let the methods of memory of a model that has come back say that no device holds a part: code polls them."""
    model.__dict__.update(dict.fromkeys(METHODS, dict))


def with_devices(model: Any) -> None:
    """Undo ``without_devices``, before the model is shared out again."""
    for name in METHODS:
        model.__dict__.pop(name, None)


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
    memory_chached = memory_reserved
