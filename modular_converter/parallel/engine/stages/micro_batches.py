"""A caller's batch: the tensors that are divided into micro-batches, and the inputs that every micro-batch gets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.choice.loss_of_parts import refuse_mixed_rows
from modular_converter.parallel.choice.skeleton import META, on_meta
from modular_converter.parallel.engine.group.parts_of_batch import label_counts
from modular_converter.parallel.errors import ApplyError, one_line
from modular_converter.parallel.proof.prove import small_copy
from modular_converter.parallel.tiny.arguments import CACHES
from modular_converter.parallel.tiny.inputs import examples_of


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
