"""A caller's loss over micro-batches: what one process computes with the whole batch, or an error.

A loss that is a mean of rows is the mean of the micro-batches' losses, and one that is a sum is their sum; so it is with the parts
of data ranks, which average gradients. Which of the two it is, gradients of two rows show, together and alone. Of any other, such as
a mean over labels of which some do not count, no numbers of parts make that of the batch.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from modular_converter.parallel.choice.loss_of_parts import alike, norm
from modular_converter.parallel.engine.stages.micro_batches import ONE_PART
from modular_converter.parallel.errors import ApplyError, one_line
from modular_converter.parallel.torch_private import pytree


logger = logging.getLogger(__name__)


Loss = Callable[[Any, torch.Tensor], torch.Tensor]


class NextPart(NamedTuple):
    """What a process knows of the part of a batch that the next data rank has.

    Attributes:
        rows: their number.
        target: that of one of them.
    """

    rows: int
    target: torch.Tensor


def row_of(target: torch.Tensor) -> torch.Tensor:
    """The row of a target of which the fewest entries are alike."""
    number = int(_repeats(target).argmin())
    return target[number : number + 1].detach().cpu()


class _Row(NamedTuple):
    """One row of an output and of its target."""

    leaves: list[Any]
    with_rows: list[bool]
    spec: Any
    target: torch.Tensor


class LossOfRows:
    """A caller's loss, and how much its rows count: each step looks, since other targets may count otherwise.

    Args:
        loss: of the output of a micro-batch and its rows of the target.
        chunks: micro-batches of a step.
        data: data ranks, which have parts of the batch.
    """

    def __init__(self, loss: Loss, chunks: int, data: int = 1) -> None:
        self._loss, self._chunks, self._data = loss, chunks, data
        self._adds: bool | None = None
        self._largest = 0.0  # norm of gradients: those of learnt rows are rounding
        self._rows = 0
        self._next: NextPart | None = None
        self._first: _Row | None = None
        self._of_first: list[torch.Tensor] = []
        """The gradients of the step's first row alone."""

    def begin(self, rows: int = 0, following: NextPart | None = None) -> None:
        """Before a step.

        Args:
            rows: of this process's part of the batch.
            following: the part of the next data rank; None without data ranks.
        """
        self._first, self._rows, self._next = None, rows, following

    def __call__(self, output: Any, target: torch.Tensor) -> torch.Tensor:
        """A micro-batch's contribution to the loss of the batch. Raises ``ApplyError`` if there is none."""
        found = self._loss(output, target)
        if self._chunks * self._data > 1:
            devices = [target.device] if target.is_cuda else []
            with torch.random.fork_rng(devices), torch.enable_grad():
                self._look(output, target)
        return found * self._data if self._adds else found / self._chunks

    def _look(self, output: Any, target: torch.Tensor) -> None:
        """Compare one of the step's first rows with one of this micro-batch that has another target.

        The first is also compared with itself under the target of a row of the next data rank: of the classes of one part all may
        have the same weight.
        """
        first = self._first
        if first is not None:
            self._compare(first, _row(output, target, _unlike(target, first.target)))
            return
        self._first = first = _row(output, target, int(_repeats(target).argmin()))
        self._of_first = self._gradients([first])
        self._compare(first, _row(output, target, _unlike(target, first.target)))
        if self._next is None:
            return
        other = first._replace(target=_as_wide(self._next.target, first.target))
        try:
            self._gradients([other])
        except Exception:  # a target that its own output alone allows, such as a place in a longer text
            logger.debug("loss= does not take the target of another data rank", exc_info=True)
        else:
            self._compare(first, other)
        if self._adds is False and self._next.rows != self._rows:
            raise ApplyError(
                f"data ranks have {self._rows} and {self._next.rows} rows, and the mean of their losses is not that of the batch: give "
                "parts with as many rows, or return a sum over rows, divided by a number of the whole batch"
            )

    def _compare(self, first: _Row, row: _Row) -> None:
        of_row = self._gradients([row])
        whole = (
            [(row, row, of_row, of_row), (first, first, self._of_first, self._of_first)] if self._adds is None else []
        )
        for one, other, *alone in [*whole, (first, row, self._of_first, of_row)]:
            together = self._gradients([one, other])
            sizes = [norm(gradient) for gradient in together]
            if not any(sizes) and not any(bool(gradient.any()) for own in alone for gradient in own):
                continue  # rows that do not count at all
            self._largest = max(self._largest, *sizes)
            factors = (1.0, 0.5) if self._adds is None else (1.0 if self._adds else 0.5,)
            fitting = [factor for factor in factors if self._fits(together, alone, factor)]
            if not fitting:
                raise ApplyError(
                    "rows count otherwise in loss= together than alone, as in a mean over the labels that count, with weights of "
                    "classes, or in a comparison of rows, so parts of a batch do not have the loss of the batch: return a sum over "
                    f"rows, divided by a number of the whole batch, or {ONE_PART}"
                )
            self._adds = fitting[0] == 1.0

    def _fits(self, together: Sequence[torch.Tensor], alone: Sequence[Sequence[torch.Tensor]], factor: float) -> bool:
        """Whether the gradients of two rows are those of each alone, times a factor."""
        pairs = [(both[at : at + 1], one) for at, own in enumerate(alone) for both, one in zip(together, own)]
        part = [float(torch.finfo(one.dtype).eps ** 0.5) for _, one in pairs]
        return all(
            alike(both, one * factor, least, least * 1e-3 * self._largest) for (both, one), least in zip(pairs, part)
        )

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
            if self._adds is not None:  # which has taken two rows before
                raise
            raise ApplyError(
                f"loss= fails with {len(rows)} rows ({one_line(error)}), so that it cannot be proven to be a mean of rows: {ONE_PART}"
            ) from error
        return [one.detach() for one in found]


def _repeats(target: torch.Tensor) -> torch.Tensor:
    """How often a row has its most frequent entry: what does not count, such as padding, is one entry many times."""
    rows = target.flatten(1) if target.dim() > 1 else target[:, None]
    same = (rows == rows.mode(1, keepdim=True).values).sum(1)
    return torch.maximum(same, rows.isnan().sum(1))


def _unlike(target: torch.Tensor, first: torch.Tensor) -> int:
    """The row with the most repeats among those with another target than the first, of several the farthest from it."""
    apart = (target.double() - first.double()).abs().nan_to_num(math.inf).flatten(1 if target.dim() > 1 else 0)
    far = apart.sum(1) if target.dim() > 1 else apart
    counts = torch.where(far > 0, _repeats(target), -1).tolist()
    return max(range(len(counts)), key=lambda number: (counts[number], float(far[number])))


def _as_wide(target: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
    """A row of a target with the entries of another one, again and again."""
    entries = target.to(own).flatten()
    if not len(entries):
        return own
    return entries.repeat(-(-own.numel() // len(entries)))[: own.numel()].view(own.shape)


def _row(output: Any, target: torch.Tensor, number: int) -> _Row:
    leaves, spec = pytree.tree_flatten(output)
    rows = [isinstance(one, torch.Tensor) and one.dim() > 0 and len(one) == len(target) for one in leaves]
    own = [one.detach()[number : number + 1].clone() if with_rows else one for one, with_rows in zip(leaves, rows)]
    return _Row(own, rows, spec, target[number : number + 1])
