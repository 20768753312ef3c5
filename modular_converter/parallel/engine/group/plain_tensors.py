"""Tensors of the caller's own in operations with weights and gradients that processes share out.

Each process computes with its own tensor, so they must be the same on all, as one device has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from modular_converter.parallel.engine.group.same_calls import digest_of, meet_of, refused_here


def plain_among(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    """The tensors of more than one number that are no DTensors; torch takes one number for that of all processes."""
    for one in (*args, *kwargs.values()):
        for tensor in one if isinstance(one, (list, tuple)) else (one,):
            if isinstance(tensor, torch.Tensor) and not isinstance(tensor, DTensor) and tensor.numel() != 1:
                yield tensor


def meet_with(operation: Any, plain: Sequence[torch.Tensor], written: Sequence[Any], mesh: DeviceMesh) -> None:
    """Wait until all processes of a mesh compute an operation of DTensors with these tensors.

    Raises ``ApplyError`` for tensors that are not the same on all, that get a gradient, or that the operation writes to.
    """
    if any(one.requires_grad or any(one is other for other in written) for one in plain):
        raise refused_here(
            f"{operation} of a weight or gradient that processes share out, and of a tensor of your own that gets a gradient or "
            "is written: take the whole weight, weight.full_tensor()"
        )
    about = ", ".join(f"{list(one.shape)} ({digest_of(one)[:12]})" for one in plain)
    meet_of(
        f"code that computes {operation} of a weight or gradient that processes share out and of its own tensor {about}, which "
        "must be the same on all (else take weight.full_tensor())",
        mesh.mesh.flatten().tolist(),
    )
