"""How much memory a device holds: the allocator's figures on GPUs, the process's resident bytes on CPUs."""

from __future__ import annotations

import os

import torch


def usage(device: torch.device) -> dict[str, int | str]:
    """``allocated`` and ``reserved`` bytes, and a ``summary`` to print."""
    if device.type == "cuda":
        return {
            "allocated": torch.cuda.memory_allocated(device),
            "reserved": torch.cuda.memory_reserved(device),
            "summary": torch.cuda.memory_summary(device, abbreviated=True),
        }
    resident = resident_bytes()
    return {"allocated": resident, "reserved": resident, "summary": f"resident memory {resident / 2**20:.0f} MiB"}


def resident_bytes() -> int:
    """Bytes of this process that lie in memory; where the system does not say, the largest that they have been."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
