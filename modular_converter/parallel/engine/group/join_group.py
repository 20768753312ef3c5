"""This process's device and the process group of a script under torchrun."""

from __future__ import annotations

import atexit
import os
import sys

import torch
import torch.distributed as dist

from modular_converter.parallel.errors import ApplyError


def join_group(device: str | torch.device | None, offload: bool = False) -> torch.device:
    """This process's device; the process group is made if the script has not made one.

    Args:
        device: if None, the process's own GPU, or the CPU without GPUs.
        offload: whether weights are in the host's memory between steps.

    Raises ``ApplyError`` for ``offload`` if the script's group takes no CPU tensors.
    """
    gpu = torch.cuda.is_available() and (device is None or torch.device(device).type == "cuda")
    place = torch.device(device or "cuda") if gpu else torch.device("cpu")
    if gpu:
        place = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if place.index is None else place
        torch.cuda.set_device(place)
    if not dist.is_initialized():
        dist.init_process_group(("cpu:gloo,cuda:nccl" if offload else "nccl") if gpu else "gloo")
        if not gpu:
            atexit.register(_leave)
    if offload and "cpu" not in dist.get_backend_config():
        raise ApplyError(
            "offload=: the process group takes no CPU tensors; make it with 'cpu:gloo,cuda:nccl', or let parallelize do so"
        )
    return place


def _leave() -> None:
    """End the group before the interpreter ends: a thread of gloo that outlives it can crash the process.

    After an error the other processes may be in a collective, for which the end would wait.
    """
    if dist.is_initialized() and not hasattr(sys, "last_value"):
        dist.destroy_process_group()
