"""A caller's batch: the tensors that are divided into micro-batches, the inputs that each gets, and a loss over them.

A loss that is a mean of rows is the mean of the micro-batches' losses, and one that is a sum is their sum; so it is with the parts
of data ranks, which average gradients. Which of the two it is, gradients of two rows show, together and alone. Of any other, such as
a mean over labels of which some do not count, no numbers of parts make that of the batch.
"""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from modular_converter.parallel.choice.loss_of_parts import alike, norm, refuse_mixed_rows
from modular_converter.parallel.choice.skeleton import META, on_meta
from modular_converter.parallel.engine.group.parts_of_batch import label_counts
from modular_converter.parallel.errors import ApplyError, one_line
from modular_converter.parallel.proof.prove import small_copy
from modular_converter.parallel.tiny.arguments import CACHES
from modular_converter.parallel.tiny.inputs import examples_of
from modular_converter.parallel.torch_private import pytree


# Results of all layers: a step does not return them, and a loss made of them is no mean over micro-batches.
_OF_ALL_LAYERS = ("output_attentions", "output_hidden_states", "output_router_logits")
# Inputs whose first dimension is the rows, by transformers' documentation. Runs without data do not show it for masks.
_ROWS_FIRST = (
    "attention_mask",
    "input_features",
    "input_ids",
    "input_values",
    "inputs_embeds",
    "labels",
    "pixel_values",
    "position_ids",
    "shift_labels",
    "token_type_ids",
)
NO_ROWS = "the batch has no rows: leave it out, on all processes"
# The most runs without data to find the rows of all inputs.
_MOST_RUNS = 32


@dataclass(frozen=True)
class Batch:
    """The inputs of one step.

    Attributes:
        size: the number of rows.
        inputs: all of them.
        rows: name of a divided tensor -> its dimension of rows.
    """

    size: int
    inputs: Mapping[str, Any]
    rows: Mapping[str, int]

    def parts(self, chunks: int) -> list[dict[str, Any]]:
        """The inputs of each micro-batch."""
        each = self.size // chunks
        return [
            {
                name: value.narrow(self.rows[name], number * each, each) if name in self.rows else value
                for name, value in self.inputs.items()
            }
            for number in range(chunks)
        ]

    @property
    def shapes(self) -> tuple[Any, ...]:
        """A key for steps with the same shapes and values."""
        return tuple(
            (name, (tuple(value.shape), value.dtype) if isinstance(value, torch.Tensor) else repr(value))
            for name, value in sorted(self.inputs.items())
        )


def batch_of(inputs: Mapping[str, Any], chunks: int, device: torch.device, rows: RowDimensions) -> Batch:
    """Inputs as a batch, on the stage's device.

    Raises ``ApplyError`` without any tensor, with a cache, and for rows that do not divide or cannot be found.
    """
    if inputs.get("use_cache") or any(inputs.get(name) is not None for name in CACHES):
        raise ApplyError("a forward in stages keeps no caches: leave use_cache and the cache out, or call generate()")
    moved = {name: v.to(device) if isinstance(v, torch.Tensor) else v for name, v in inputs.items()}
    size = rows.size(moved)
    if not size:
        given = any(isinstance(value, torch.Tensor) and value.dim() for value in moved.values())
        raise ApplyError(NO_ROWS if given else "a step needs the batch by name, such as input_ids=ids")
    if size % chunks:
        fitting = [number for number in range(1, size + 1) if size % number == 0]
        sizes = ", ".join(map(str, fitting[-6:]))
        raise ApplyError(f"{size} rows do not divide into {chunks} micro-batches: give chunks= one of {sizes}")
    return Batch(size, moved, rows.of(moved) if chunks > 1 else {})


class RowDimensions:
    """The dimension of rows in each input, found by runs without data with one more row.

    A length equal to the number of rows proves nothing: a table of four entries may accompany four sentences.

    Args:
        run: runs the model without data; raises if inputs do not fit together.
        main: the name of the model's main input.
    """

    def __init__(self, run: Callable[[Mapping[str, Any]], Any], main: str) -> None:
        self._run, self._main = run, main
        self._known: dict[Any, dict[str, int]] = {}

    def size(self, inputs: Mapping[str, Any]) -> int:
        """The number of rows: the length of the main input, or else of the first tensor; 0 without tensors."""
        tensors = {name: v for name, v in inputs.items() if isinstance(v, torch.Tensor) and v.dim()}
        main = tensors.get(self._main, next(iter(tensors.values()), None))
        return 0 if main is None else main.shape[0]

    def of(self, inputs: Mapping[str, Any]) -> dict[str, int]:
        """Name of a tensor with rows -> its dimension of rows.

        Raises ``ApplyError`` if the model runs with none of the possible dimensions, or with several.
        """
        size = self.size(inputs)
        tensors = {name: v for name, v in inputs.items() if isinstance(v, torch.Tensor)}
        alike = {name: tuple(d for d, length in enumerate(v.shape) if length == size) for name, v in tensors.items()}
        key = tuple((name, tensors[name].dim(), dims) for name, dims in alike.items())
        if key not in self._known:
            self._known[key] = self._found(inputs, alike, size)
        return self._known[key]

    def _found(self, inputs: Mapping[str, Any], alike: Mapping[str, tuple[int, ...]], size: int) -> dict[str, int]:
        first = self._main if self._main in alike else next(name for name in inputs if name in alike)
        names = [name for name, dims in alike.items() if dims and name != first]
        choices: list[tuple[int | None, ...]] = [(*alike[name], None) for name in names]
        failure = ""
        for chosen in itertools.islice(itertools.product(*choices), _MOST_RUNS):
            dims = {first: 0, **{name: dim for name, dim in zip(names, chosen) if dim is not None}}
            failure = self._fails(inputs, dims)
            if not failure:
                self._refuse_tables(inputs, dims, size)
                return dims
        if alone := self._fails(inputs, {}):
            raise ApplyError(
                f"the model does not run with these inputs ({alone}): give others, or chunks=1 if they are right"
            )
        raise ApplyError(
            f"the model does not run with one more row, so its batch cannot be divided ({failure}); give chunks=1"
        )

    def _refuse_tables(self, inputs: Mapping[str, Any], dims: Mapping[str, int], size: int) -> None:
        """Raise ``ApplyError`` for an input that the model uses but that need not have one entry for each row."""
        for name, dim in dims.items():
            rest = {other: d for other, d in dims.items() if other != name}
            if (name in _ROWS_FIRST and not dim) or not rest or self._fails(inputs, rest):
                continue
            unused = {**inputs, name: torch.empty(2, 3, 5, 7, 11, 13, dtype=inputs[name].dtype, device=META)}
            if self._fails(unused, rest):
                raise ApplyError(
                    f"{name} has {size} entries in dimension {dim}, as many as the batch has rows, but the model accepts "
                    "it for other numbers of rows: give a batch of another size, or chunks=1"
                )

    def _fails(self, inputs: Mapping[str, Any], dims: Mapping[str, int]) -> str:
        """The reason why the model does not run with one more row in some dimensions; "" if it runs."""
        grown = {
            name: on_meta(value).new_empty([n + (d == dims[name]) for d, n in enumerate(value.shape)])
            if name in dims
            else on_meta(value)
            for name, value in inputs.items()
        }
        try:
            self._run(grown)
        except Exception as error:  # the model's own code may raise any error
            return one_line(error, 120)
        return ""


_MOST_ROWS = 8
ONE_PART = "give chunks=1, in a layout without ddp and fsdp"
"""What to give where parts of a batch, which data ranks and micro-batches have, are not as the batch."""
WHOLE_BATCH = "micro-batches and data ranks", ONE_PART
"""Which parts are too few for rows that depend on each other, and what to give: see ``refuse_mixed_rows``."""


def refuse_mixed_examples(model: torch.nn.Module, examples: Mapping[str, Any], rows: RowDimensions) -> None:
    """Raise ``ApplyError`` if a row's results are others where it is computed alone, as behind a mean over the batch."""
    size = rows.size(examples)
    if size < 2:
        return
    try:
        dims = rows.of(examples)
    except ApplyError:  # which a step says, if its own batch is such
        return
    few = min(size, _MOST_ROWS)
    given = {name: one.narrow(dims[name], 0, few) if name in dims else one for name, one in examples.items()}
    alone = Batch(few, given, dims).parts(few)
    refuse_mixed_rows(model, small_copy(model, examples).model, given, alone, *WHOLE_BATCH)


def refuse_what_a_step_lacks(inputs: Mapping[str, Any], config: Any) -> None:
    """Raise ``ApplyError`` for results that a step does not return, and for a loss that is a sum and no mean."""
    wanted = [n for n in _OF_ALL_LAYERS if inputs.get(n, getattr(config, n, None) or None)]
    if wanted:
        raise ApplyError(f"{wanted[0]}: a step returns only the loss; leave it out, and get it from a forward")
    if inputs.get("num_items_in_batch") is not None:
        raise ApplyError("num_items_in_batch: a step takes the mean of micro-batches, not their sum; leave it out")


def refuse_unequal_labels(batch: Batch, chunks: int) -> None:
    """Raise ``ApplyError`` if micro-batches have different numbers of labels that count.

    A loss is a mean over these labels: the mean of the micro-batches' means would be another number.
    """
    for name in ("labels", "shift_labels"):
        labels = batch.inputs.get(name)
        if labels is None or labels.is_floating_point():
            continue
        for counts in torch.stack([label_counts(part) for part in labels.chunk(chunks)]).T.tolist():
            if len({*counts}) > 1:
                raise ApplyError(
                    f"micro-batches have {min(counts)} to {max(counts)} labels that count, so the mean of their losses is "
                    "not the loss of the batch: give loss= with a sum over your own weights, or chunks=1"
                )


def what_counts(batch: Batch) -> str:
    """What the mean of a loss divides by, in words: equal for all data ranks, whose losses have the same weight."""
    labels = (batch.inputs.get(name) for name in ("labels", "shift_labels"))
    counts = [label_counts(one).tolist() for one in labels if one is not None and not one.is_floating_point()]
    return f"{batch.size} rows" + "".join(f" with {' or '.join(map(str, one))} labels that count" for one in counts)


def refuse_hooks(weights: Mapping[str, torch.nn.Parameter]) -> None:
    """Raise ``ApplyError`` for a caller's hook on the gradient of a weight, which would run on parts of the gradient."""
    for name, one in weights.items():
        kinds: Any = (one._backward_hooks, getattr(one, "_post_accumulate_grad_hooks", None))
        hooks = [hook for kind in kinds for hook in (kind or {}).values()]
        if any(not str(getattr(hook, "__module__", "")).startswith("modular_converter.") for hook in hooks):
            raise ApplyError(
                f"{name} has a hook on its gradient, which a step would call for each micro-batch, and on each process that has "
                "the weight, before their gradients are summed: remove it, and change weight.grad after the step"
            )


def main_input(model: torch.nn.Module) -> str:
    """The input whose first dimension is the rows of a batch."""
    examples = examples_of(model) or {}
    first = next(
        (name for name, value in examples.items() if isinstance(value, torch.Tensor) and value.dim()), "input_ids"
    )
    return str(getattr(model, "main_input_name", first))


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
