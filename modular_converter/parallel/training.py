"""Settings of training, and types of arguments in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from modular_converter.parallel.errors import ApplyError


if TYPE_CHECKING:
    import torch

_WORDS = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "f16": "float16",
    "half": "float16",
    "fp32": "float32",
    "f32": "float32",
    "float": "float32",
    "single": "float32",
    "fp64": "float64",
    "f64": "float64",
    "double": "float64",
}


def floating_type(value: Any, option: str) -> torch.dtype:
    """The type of torch: itself, or for a word such as ``"bf16"``, ``"bfloat16"`` or ``"torch.bfloat16"``.

    Raises ``ApplyError`` with the option for anything else.
    """
    import torch

    found = value
    if isinstance(value, str):
        word = value.strip().lower().removeprefix("torch.")
        found = getattr(torch, _WORDS.get(word, word), None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ApplyError(f"{option}={value!r}: give a floating type, such as torch.bfloat16 or 'bf16'")
    return found


@dataclass(frozen=True)
class Training:
    """Options of ``parallelize(layout=…)``, applied in this order.

    Attributes:
        recompute: whether layers keep only their inputs and compute again in the backward pass; less memory, a third more
            time.
        compile: whether each layer is compiled; with ``tp`` or ``ep``, only without dropout and without ``recompute``.
        compute_type: the type of matrix products, such as ``torch.bfloat16`` or ``"bf16"``; weights, sums of gradients
            and the optimizer's state keep their types.
        reshard: with ``fsdp``, whether layers free other processes' weights after their forward (ZeRO 3), or only after
            the backward pass (ZeRO 2, and ZeRO 1: the traffic of ``ddp``, with the optimizer's state in shards).
        offload: with ``fsdp``, whether weights, gradients and the optimizer's state are on the host; slow.
        sequence_parallel: with ``tp``, whether norms, residuals and dropout between the sharded layers have a part of the
            sequence on each process; less memory for activations.
        chunks: with ``pp``, the number of micro-batches of a step.
        schedule: with ``pp``, the order of their passes: ``GPipe``, ``1F1B``, ``LoopedBFS`` or ``Interleaved1F1B``.
        loss: with ``pp``, the function of the model's output and the rows of ``target``, as in ``Pipeline``.

    Raises ``ApplyError`` for a value that an option cannot have.
    """

    recompute: bool = False
    compile: bool = False
    compute_type: torch.dtype | str | None = None
    reshard: bool = True
    offload: bool = False
    sequence_parallel: bool = False
    chunks: int | None = None
    schedule: str = "1F1B"
    loss: Callable[[Any, torch.Tensor], torch.Tensor] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("recompute", "compile", "reshard", "offload", "sequence_parallel"):
            if not isinstance(getattr(self, name), bool):
                raise ApplyError(f"Training({name}={getattr(self, name)!r}): give True or False")
        if self.chunks is not None and (type(self.chunks) is not int or self.chunks < 1):
            raise ApplyError(f"Training(chunks={self.chunks!r}): give a whole number of 1 or more")
        if not isinstance(self.schedule, str):
            raise ApplyError(f"Training(schedule={self.schedule!r}): give a name, such as '1F1B'")
        if self.compute_type is not None:
            kind = floating_type(self.compute_type, "compute_type")
            if kind.itemsize < 2:
                raise ApplyError(f"compute_type={kind}: layers compute in no such type; give torch.bfloat16 or 'bf16'")
            object.__setattr__(self, "compute_type", kind)

    @property
    def computes_in(self) -> torch.dtype | None:
        """``compute_type`` as a type of torch."""
        return None if self.compute_type is None else floating_type(self.compute_type, "compute_type")
