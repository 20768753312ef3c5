"""A caller's loss over micro-batches: what one process computes with the whole batch, or an error.

A loss that is a mean of rows is the mean of the micro-batches' losses, and one that is a sum is their sum. Which of the two it
is, gradients of two rows show, together and alone. Of any other, such as a mean over labels of which some do not count, no
numbers of micro-batches make that of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from modular_converter.parallel.engine.group.parts_of_batch import label_counts
from modular_converter.parallel.errors import ApplyError, one_line
from modular_converter.parallel.torch_private import pytree


Loss = Callable[[Any, torch.Tensor], torch.Tensor]


class _Row(NamedTuple):
    """One row of an output and of its target."""

    leaves: list[Any]
    with_rows: list[bool]
    spec: Any
    target: torch.Tensor


class LossOfRows:
    """A caller's loss, and how much its rows count; the first step looks, and any in which other numbers of labels count.

    Args:
        loss: of the output of a micro-batch and its rows of the target.
        chunks: micro-batches of a step.
    """

    def __init__(self, loss: Loss, chunks: int) -> None:
        self._loss, self._chunks = loss, chunks
        self._adds: bool | None = None
        self._looks, self._counts_differ = chunks > 1, False
        self._first: _Row | None = None

    def begin(self, target: torch.Tensor) -> None:
        """Before a step, with the rows of all its micro-batches."""
        self._first = None
        if self._chunks > 1 and not self._counts_differ and not target.is_floating_point():
            counts = torch.stack([label_counts(part) for part in target.chunk(self._chunks)])
            self._counts_differ = bool((counts != counts[:1]).any())
            self._looks |= self._counts_differ

    def ended(self) -> None:
        """After a step without an error."""
        self._looks = False

    def __call__(self, output: Any, target: torch.Tensor) -> torch.Tensor:
        """A micro-batch's contribution to the loss of the batch. Raises ``ApplyError`` if there is none."""
        found = self._loss(output, target)
        if self._looks:
            devices = [target.device] if target.is_cuda else []
            with torch.random.fork_rng(devices), torch.enable_grad():
                self._look(output, target)
        return found if self._adds else found / self._chunks

    def _look(self, output: Any, target: torch.Tensor) -> None:
        """Compare the step's first row, and one of this micro-batch with another target, with themselves and with each other."""
        others = (target != target[:1]).flatten(1).any(1) if target.dim() > 1 else target != target[:1]
        row = _row(output, target, int(others.nonzero().max()) if others.any() else len(target) - 1)
        self._first = first = self._first or _row(output, target, 0)
        for one, other in ((first, first), (row, row), (first, row)):
            factors = (1.0, 0.5) if self._adds is None else (1.0 if self._adds else 0.5,)
            together = self._gradients([one, other])
            alone = [torch.cat(pair) for pair in zip(self._gradients([one]), self._gradients([other]))]
            if not any(bool(gradient.any()) for gradient in (*together, *alone)):
                continue  # rows that do not count at all
            fitting = [f for f in factors if all(_alike(a, b * f) for a, b in zip(together, alone))]
            if not fitting:
                raise ApplyError(
                    "rows count otherwise in loss= together than alone, as in a mean over the labels that count, with weights of "
                    "classes, or in a comparison of rows, so micro-batches do not have the loss of the batch: return a sum over "
                    "rows, divided by a number of the whole batch, or give chunks=1"
                )
            self._adds = fitting[0] == 1.0

    def _gradients(self, rows: Sequence[_Row]) -> list[torch.Tensor]:
        first = rows[0]
        leaves = [
            torch.cat([row.leaves[at] for row in rows]) if with_rows else leaf
            for at, (leaf, with_rows) in enumerate(zip(first.leaves, first.with_rows))
        ]
        wanted = [
            one.requires_grad_() for one, rows in zip(leaves, first.with_rows) if rows and one.is_floating_point()
        ]
        try:
            loss = self._loss(pytree.tree_unflatten(leaves, first.spec), torch.cat([row.target for row in rows]))
            found = torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)
        except Exception as error:  # of the caller's function
            raise ApplyError(
                f"loss= fails with {len(rows)} rows ({one_line(error)}), so that it cannot be proven to be a mean of rows: give chunks=1"
            ) from error
        return [one.detach() for one in found]


def _row(output: Any, target: torch.Tensor, number: int) -> _Row:
    leaves, spec = pytree.tree_flatten(output)
    rows = [isinstance(one, torch.Tensor) and one.dim() > 0 and len(one) == len(target) for one in leaves]
    own = [one.detach()[number : number + 1].clone() if with_rows else one for one, with_rows in zip(leaves, rows)]
    return _Row(own, rows, spec, target[number : number + 1])


def _alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    least = torch.finfo(one.dtype).eps ** 0.5
    return bool((one - other).double().norm() <= least * other.double().norm())
