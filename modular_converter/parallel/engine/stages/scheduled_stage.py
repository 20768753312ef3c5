"""A stage in the form for torch's schedules: tensors in by position, a tuple of tensors out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from modular_converter.parallel.choice.skeleton import META
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.pipeline.flow import LayerFlow
from modular_converter.parallel.pipeline.stage import StageModule
from modular_converter.parallel.torch_private import pytree


# Values of an output that are the same for all micro-batches.
_PLAIN = (torch.Tensor, str, int, float, bool, type(None))


class ScheduledStage(torch.nn.Module):
    """A stage for torch's schedules. The last stage returns the tensors of the model's output.

    Attributes:
        inputs: of each micro-batch.
    """

    def __init__(self, stage: StageModule, flow: LayerFlow) -> None:
        super().__init__()
        self.stage, self.inputs = stage, list[dict[str, Any]]()
        leaves, self._form = pytree.tree_flatten(flow.output)
        strange = next((leaf for leaf in leaves if not isinstance(leaf, _PLAIN)), None)
        if strange is not None:
            raise ApplyError(
                f"the model returns a {type(strange).__name__}, which micro-batches do not share: give an argument, such as "
                "use_cache=False, with which it does not"
            )
        # Each tensor once: the last hidden state is also among the hidden states.
        self._order = list({id(leaf): leaf for leaf in leaves if isinstance(leaf, torch.Tensor)})
        self._leaves = [
            (self._order.index(id(leaf)) if isinstance(leaf, torch.Tensor) else None, leaf) for leaf in leaves
        ]
        self._flow = flow

    @property
    def gives(self) -> tuple[torch.Tensor, ...]:
        """Tensors with the shapes and types of the forward's result."""
        return self._distinct(self._flow.output) if self.stage.is_last else self.stage.gives

    def forward(self, *received: torch.Tensor, micro_batch: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors for the next stage, or those of the model's output.

        Args:
            micro_batch: its number.
        """
        result = self.stage(*received, **self.inputs[int(micro_batch)])
        tensors = self._distinct(result) if self.stage.is_last else result
        # torch sends contiguous tensors, unlike a bias of t5, and detaches them in place, unlike the views of opt.
        return tuple((tensor if tensor._base is None else tensor.clone()).contiguous() for tensor in tensors)

    def output(self, tensors: Any) -> Any:
        """The model's output from its tensors."""
        found = tensors if isinstance(tensors, (list, tuple)) else (tensors,)
        leaves = [leaf if place is None else found[place] for place, leaf in self._leaves]
        return pytree.tree_unflatten(leaves, self._form)

    def _distinct(self, output: Any) -> tuple[torch.Tensor, ...]:
        """The tensors of an output, each once."""
        leaves, form = pytree.tree_flatten(output)
        if form != self._form:
            raise ApplyError("the model's output has another form than in the run without data: run the whole model")
        first = {place: leaf for (place, _), leaf in reversed(list(zip(self._leaves, leaves))) if place is not None}
        return tuple(first[place] for place in range(len(self._order)))


def bare_leaves(tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Leaf tensors without data, with the same shapes, types and requires_grad."""
    made = (torch.empty(t.shape, dtype=t.dtype, device=META).requires_grad_(t.requires_grad) for t in tensors)
    return tuple(made)


def refuse_parts_of_one_result(part: Any, whole: Any, chunks: int) -> None:
    """Raise ``ApplyError`` for results that do not consist of rows, which micro-batches cannot make.

    Args:
        part, whole: the output for a micro-batch and for the batch.
    """
    whole_leaves = dict(pytree.tree_flatten_with_path(whole)[0])
    for path, leaf in pytree.tree_flatten_with_path(part)[0]:
        other = whole_leaves.get(path)
        if not isinstance(leaf, torch.Tensor) or not isinstance(other, torch.Tensor):
            continue
        if not leaf.dim() or (leaf.shape[0] * chunks, *leaf.shape[1:]) != tuple(other.shape):
            raise ApplyError(
                f"{pytree.keystr(path)} of the output is {list(other.shape)} for the batch and {list(leaf.shape)} for a "
                "micro-batch, so it does not consist of rows: give Pipeline chunks=1, or leave it out"
            )


def what_was_not_handed_over(output: Any) -> str:
    """The message for a result that is all NaN, because it uses values inside of another stage; empty without one."""
    for path, leaf in pytree.tree_flatten_with_path(output)[0]:
        if not isinstance(leaf, torch.Tensor) or not leaf.is_floating_point() or not leaf.numel():
            continue
        first = leaf[(0,) * leaf.dim()]  # tested alone, since a test of all logits of 32 x 2048 words needs 2 GiB
        if bool(first.isnan()) and bool(leaf.isnan().all()):
            return (
                f"{pytree.keystr(path)} of the output is all NaN: it uses values inside of other stages, or the weights are "
                "broken; leave it out, or run the whole model"
            )
    return ""
