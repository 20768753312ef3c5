"""A stage as torch's schedules want it: tensors in by position, a tuple of tensors out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.pipeline.flow import LayerFlow
from modular_converter.parallel.pipeline.stage import StageModule


class ScheduledStage(torch.nn.Module):
    """A stage whose last one returns the tensors of the model's output.

    Attributes:
        common: inputs that are the same for all micro-batches.
    """

    def __init__(self, stage: StageModule, flow: LayerFlow) -> None:
        super().__init__()
        self.stage, self.common = stage, dict[str, Any]()
        self._kind = type(flow.output)
        self._output = _entries(flow.output) if stage.is_last else {}

    @property
    def gives(self) -> tuple[torch.Tensor, ...]:
        """Tensors of the shapes and types of the forward's result."""
        return tuple(self._output.values()) if self.stage.is_last else self.stage.gives

    def forward(self, *received: torch.Tensor, **inputs: Any) -> tuple[torch.Tensor, ...]:
        """The tensors for the next stage, or those of the model's output."""
        result = self.stage(*received, **inputs, **self.common)
        tensors = _entries(result).values() if self.stage.is_last else result
        # torch detaches what a stage gives in place, which views do not allow: those of opt's layers, say
        return tuple(tensor if tensor._base is None else tensor.clone() for tensor in tensors)

    def output(self, tensors: Any) -> Any:
        """The model's output from its tensors."""
        found = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
        return self._kind(**dict(zip(self._output, found)))


def _entries(output: Any) -> dict[str, torch.Tensor]:
    """The tensors of an output by name; raises ``ApplyError`` for an output of another kind."""
    if not isinstance(output, Mapping):
        raise ApplyError(f"the model returns a {type(output).__name__}, stages need an output with names")
    return {name: value for name, value in output.items() if isinstance(value, torch.Tensor)}


def bare_leaves(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Leaves without data, of the same shapes, which need gradients as these do."""
    made = (torch.empty(t.shape, dtype=t.dtype, device="meta").requires_grad_(t.requires_grad) for t in tensors)
    return tuple(made)
