"""Options for the training of a model in a process group. torch is imported only for type hints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING


if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Training:
    """Options of ``parallelize(layout=…)``, applied in this order.

    Attributes:
        recompute: whether layers keep only their inputs and compute again in the backward pass; less memory, a third more
            time.
        compile: whether each layer is compiled; with ``tp`` or ``ep``, only without dropout and without ``recompute``.
        compute_type: the type of matrix products, such as ``torch.bfloat16``; weights, sums of gradients and the
            optimizer's state keep their types.
        reshard: with ``fsdp``, whether layers free other processes' weights after their forward (ZeRO 3), or only after
            the backward pass (ZeRO 2).
        offload: with ``fsdp``, whether weights, gradients and the optimizer's state are on the host; slow.
        sequence_parallel: with ``tp``, whether norms, residuals and dropout between the sharded layers have a part of the
            sequence on each process; less memory for activations.
        chunks: with ``pp``, the number of micro-batches of a step.
        schedule: with ``pp``, the order of their passes: ``GPipe``, ``1F1B``, ``LoopedBFS`` or ``Interleaved1F1B``.
    """

    recompute: bool = False
    compile: bool = False
    compute_type: torch.dtype | None = None
    reshard: bool = True
    offload: bool = False
    sequence_parallel: bool = False
    chunks: int | None = None
    schedule: str = "1F1B"
