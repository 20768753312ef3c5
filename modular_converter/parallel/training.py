"""How the layers of a model are trained in a process group, as a value. torch is used only for names of types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Training:
    """Options of ``parallelize(layout=…)``, applied in this order.

    Attributes:
        recompute: layers keep their inputs alone and compute again in the backward pass; less memory, a third more time.
        compile: each layer is compiled by itself; with ``tp`` or ``ep`` the model must have no dropout, and no ``recompute``.
        compute_type: the type of products, such as ``torch.bfloat16``; weights, sums of gradients and the optimizer's
            state keep theirs.
        reshard: with ``fsdp``, layers give other processes' weights back after their forward (ZeRO 3); False keeps them
            until the backward pass (ZeRO 2).
        offload: with ``fsdp``, weights, gradients and the optimizer's state are on the host; slow.
        sequence_parallel: with ``tp``, norms, residuals and dropout between the layers that the plan cuts have a part of the
            sequence on each process; less memory for activations.
        chunks: with ``pp``, the micro-batches of a step.
        schedule: with ``pp``, the order of their work: ``GPipe``, ``1F1B``, ``LoopedBFS`` or ``Interleaved1F1B``.
    """

    recompute: bool = False
    compile: bool = False
    compute_type: torch.dtype | None = None
    reshard: bool = True
    offload: bool = False
    sequence_parallel: bool = False
    chunks: int | None = None
    schedule: str = "1F1B"
