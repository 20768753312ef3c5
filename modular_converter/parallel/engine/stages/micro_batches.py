"""A batch as its caller gives it: what is divided into micro-batches, and what every micro-batch gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError


# Results that are made on several stages, of which no stage has all.
_OF_ALL_LAYERS = ("output_attentions", "output_hidden_states", "output_router_logits")
# The value of a label that does not count, in transformers and in `torch.nn.functional.cross_entropy`.
_IGNORED = -100


@dataclass(frozen=True)
class Batch:
    """The inputs of one step.

    Attributes:
        size: the number of rows.
        divided: tensors with that many rows.
        common: all else.
    """

    size: int
    divided: Mapping[str, torch.Tensor]
    common: Mapping[str, Any]

    def first(self, chunks: int) -> dict[str, Any]:
        """The inputs of the first micro-batch."""
        rows = self.size // chunks
        return {**{name: value[:rows] for name, value in self.divided.items()}, **self.common}

    @property
    def shapes(self) -> tuple[Any, ...]:
        """What steps with the same shapes have in common."""
        divided = ((name, tuple(value.shape), value.dtype) for name, value in self.divided.items())
        common = (
            (name, tuple(value.shape) if isinstance(value, torch.Tensor) else repr(value))
            for name, value in self.common.items()
        )
        return (*sorted(divided, key=str), *sorted(common))


def batch_of(inputs: Mapping[str, Any], config: Any, chunks: int, device: torch.device) -> Batch:
    """Inputs as a batch, on the stage's device.

    Raises:
        ApplyError: no tensor among them, results that no stage has whole, rows that do not divide, or micro-batches
            whose labels do not count alike.
    """
    wanted = [name for name in _OF_ALL_LAYERS if inputs.get(name, getattr(config, name, None) or None)]
    if wanted:
        raise ApplyError(f"{wanted[0]}: no stage has the results of all layers; leave it out, or run the model whole")
    if inputs.get("use_cache") or inputs.get("past_key_values") is not None:
        raise ApplyError("caches are not kept by stages: leave use_cache and past_key_values out")
    if inputs.get("num_items_in_batch") is not None:
        raise ApplyError("num_items_in_batch: a step takes the mean of micro-batches, not their sum; leave it out")
    moved = {name: v.to(device) if isinstance(v, torch.Tensor) else v for name, v in inputs.items()}
    size = next((v.shape[0] for v in moved.values() if isinstance(v, torch.Tensor) and v.dim()), 0)
    if not size:
        raise ApplyError("a step needs the batch by name, such as input_ids=ids")
    if size % chunks:
        fitting = [number for number in range(1, size + 1) if size % number == 0]
        said = ", ".join(map(str, fitting[-6:]))
        raise ApplyError(f"{size} rows do not divide into {chunks} micro-batches: give chunks= one of {said}")
    divided = {n: v for n, v in moved.items() if isinstance(v, torch.Tensor) and v.dim() and v.shape[0] == size}
    for name in ("labels", "shift_labels"):
        _refuse_unequal_labels(divided.get(name), chunks)
    return Batch(size, divided, {name: value for name, value in moved.items() if name not in divided})


def _refuse_unequal_labels(labels: torch.Tensor | None, chunks: int) -> None:
    """A loss is a mean over the labels that count: the mean of means is the whole's only where they are as many."""
    if labels is None or labels.is_floating_point():
        return
    for counted in (labels, labels[:, 1:]) if labels.dim() == 2 else (labels,):  # causal models leave the first out
        counts = {int((part != _IGNORED).sum()) for part in counted.chunk(chunks)}
        if len(counts) > 1:
            raise ApplyError(
                f"micro-batches have {min(counts)} to {max(counts)} labels that count, so the mean of their losses is "
                "not the loss of the batch: give loss= with a sum over your own weights, or chunks=1"
            )
