"""Whether parts of a batch give what the batch gives: rows of results alone, and a loss as the mean of those of parts.

Both are tried on a small model. Data ranks need the second for a model's own loss, micro-batches of stages the first.

A mean over rows or labels is one. A sum is not, nor is a comparison of rows (CLIP), a measure of how evenly all rows use
experts (Mixtral with ``output_router_logits``), or a division by the number of objects in all rows (detectors).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from modular_converter.parallel.choice.small_instances import small_instance, small_settings, target_like
from modular_converter.parallel.errors import ApplyError, PlanError
from modular_converter.parallel.tiny.build import Small, copy_of
from modular_converter.parallel.tiny.shrink import BATCH
from modular_converter.parallel.torch_private import pytree
from modular_converter.parallel.torch_switches import default_type, one_thread
from modular_converter.parallel.trace.unchanged import unchanged


_ALIKE = 1e-4  # of a gradient's norm: float32 rounds to 1e-6, and the balance of experts changes it by 1e-3
_ROUNDED = 1e-3  # of a row's norm: products of one row and of several are summed in another order
_ZERO = 1e-7  # of all gradients' norm: the bias of keys has none in truth


def loss_in(output: Any) -> Any:
    """The loss in what a model returns: by its name, else the first of a tuple, or all of it."""
    found = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if found is None and isinstance(output, (tuple, torch.Tensor)):
        return output if isinstance(output, torch.Tensor) else next(iter(output), None)
    return found


@one_thread()
def is_no_mean_of_parts(model: Any, labels: Any, options: Mapping[str, Any]) -> bool:
    """Whether the gradients of two rows are others than the mean of those of each; False where this cannot be tried.

    Args:
        model: of transformers; its class and its settings count, not its weights.
        labels: as in a call, whose form alone counts; None without.
        options: the plain arguments of a call.
    """
    if (small := _small(model)) is None:
        return False
    one = small.model
    with _exactly(), torch.enable_grad():
        for more in _labelled(one, small.inputs, labels):
            given = {**small.inputs, **more}
            try:
                whole = _gradients(one, given, options)
                parts = [_gradients(one, row, options) for row in single_rows(given)]
            except Exception:  # of the model's own code: it takes no such labels, or no part of its inputs
                continue
            mean = [sum(pair) / BATCH for pair in zip(*parts)]
            total = math.hypot(*map(norm, whole))
            return not all(alike(b, a, _ALIKE, _ZERO * total) for a, b in zip(whole, mean))
    return False


@one_thread()
def divides_by_items(model: Any, labels: Any) -> bool:
    """Whether a model's own loss is a sum divided by ``num_items_in_batch``; True where this cannot be tried.

    Many models take the number with their other keywords, and leave it.

    Args:
        model, labels: as in ``is_no_mean_of_parts``.
    """
    if (small := _small(model)) is None:
        return True
    with _exactly(), torch.no_grad():
        for more in _labelled(small.model, small.inputs, labels):
            given = {**small.inputs, **more}
            try:
                few, many = (loss_in(small.model(**given, num_items_in_batch=items)) for items in (1.0, 2.0))
            except Exception:  # of the model's own code: it takes no such labels, or no number
                continue
            return not torch.equal(few, many)
    return True


def _small(model: Any) -> Small | None:
    """A small instance of a model of transformers in evaluation mode and float32; None if there is none."""
    try:
        small = small_instance(target_like(model), small_settings(model))
    except PlanError:
        return None
    return replace(small, model=copy_of(small.model).eval().float())


@contextlib.contextmanager
def _exactly() -> Iterator[None]:
    """Numbers of the caller stay; its autocast or default type, which round more than losses may differ by, do not count."""
    with torch.random.fork_rng(devices=[]), torch.autocast("cpu", enabled=False), default_type(torch.float32):
        yield


def alike(found: torch.Tensor, want: torch.Tensor, part: float, least: float = 0.0) -> bool:
    """Whether tensors differ by no more than a part of the second's norm and a least norm; two infinities are alike, and two NaN."""
    apart = found - want
    if not math.isfinite(distance := norm(apart)):
        known = (found == want) | (found.isnan() & want.isnan())
        distance, want = norm(apart.masked_fill(known, 0.0)), want.nan_to_num(0.0, 0.0, 0.0)
    return distance <= part * norm(want) + least


def norm(tensor: torch.Tensor) -> float:
    """The norm of all entries, in float32 at least."""
    return float(torch.linalg.vector_norm(tensor, dtype=torch.promote_types(tensor.dtype, torch.float32)))


def refuse_mixed_rows(
    model: torch.nn.Module,
    small: torch.nn.Module,
    given: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    parts: str,
    cure: str,
    sizes: bool = True,
) -> None:
    """Raise ``ApplyError`` if a row of what a model returns is another one where it is computed alone: see ``mixed_result``.

    Args:
        small: an instance or copy of the model, which runs.
        parts: what has fewer rows than the batch.
        cure: what else to give.
    """
    found = mixed_result(small, given, rows, sizes) if len(rows) > 1 else None
    if found is not None and found.dim():
        raise ApplyError(
            f"a row of what {type(model).__name__} returns depends on the other rows of its batch, or on their number, as behind a "
            f"mean or a norm over the batch, and {parts} have fewer rows: compute each row alone, or {cure}"
        )
    if found is not None:
        raise ApplyError(
            f"a number that {type(model).__name__} returns, such as its loss, is not the mean of those of its rows, as behind a sum, "
            f"weights of classes, or a comparison of rows, and {parts} have fewer rows: return a mean, or {cure}"
        )


@one_thread()
def mixed_result(
    model: torch.nn.Module, given: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], sizes: bool = True
) -> torch.Tensor | None:
    """A result of which a row is another one where it is computed alone, or a number that is not the mean of those of rows.

    None where a row does not run alone, or draws numbers.

    Args:
        model: in eval mode; its state is unchanged.
        given: the arguments of a forward.
        rows: those of its rows.
        sizes: whether a row of another length alone, as in a table of each row with each other one, is another row; and whether
            numbers count, such as losses.
    """

    def results(inputs: Mapping[str, Any], seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        found = [one for one in pytree.tree_leaves(model(**inputs)) if isinstance(one, torch.Tensor)]
        counted = (one for one in found if one.dim() or (sizes and one.requires_grad))
        return [one.detach() for one in counted if one.is_floating_point()]

    with (
        torch.random.fork_rng(devices=[]),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
        unchanged(model),
    ):
        try:
            whole = results(given, 0)
            if not all(map(torch.equal, whole, results(given, 1))):
                return None
            alone = [results(row, 0) for row in rows]
        except Exception:  # of the model's own code
            return None
    return next((one for one, *parts in zip(whole, *alone) if _is_mixed(one, parts, sizes)), None)


def _is_mixed(whole: torch.Tensor, parts: Sequence[torch.Tensor], sizes: bool) -> bool:
    if not whole.dim():
        return not alike(torch.stack(list(parts)).mean(0), whole, _rounded(whole), _ZERO)
    return any(
        whole.shape[1:] != one.shape[1:]
        or not alike(one, whole[number * len(one) : (number + 1) * len(one)], _rounded(whole), _ZERO)
        for number, one in enumerate(parts)
        if len(whole) == len(parts) * len(one) and (sizes or whole.shape[1:] == one.shape[1:])
    )


def _rounded(tensor: torch.Tensor) -> float:
    return max(_ROUNDED, 16 * float(torch.finfo(tensor.dtype).eps))


def _labelled(model: Any, inputs: Mapping[str, Any], labels: Any) -> Iterator[dict[str, Any]]:
    """Labels for a small instance that have the form of others: as the rows are, as the inputs, or as the outputs."""
    if labels is None:
        yield {}
    elif isinstance(labels, torch.Tensor):
        with torch.no_grad():
            output = model(**inputs)
        tensors = [one for one in (*inputs.values(), *output.values()) if isinstance(one, torch.Tensor)]
        shapes = dict.fromkeys([(BATCH,), *(one.shape[: labels.dim()] for one in tensors)])
        for shape in (shape for shape in shapes if len(shape) == labels.dim() and shape[0] == BATCH):
            numbers = torch.arange(torch.Size(shape).numel()).view(shape)
            yield {"labels": numbers.sin() if labels.is_floating_point() else numbers % 2}
    elif isinstance(labels, Sequence):  # of a detector: rows with other numbers of objects
        objects = ((torch.arange(count) % 2, torch.full((count, 4), 0.4)) for count in range(1, BATCH + 1))
        yield {"labels": [{"class_labels": kinds, "boxes": boxes} for kinds, boxes in objects]}


def single_rows(given: Mapping[str, Any], size: int = BATCH) -> list[dict[str, Any]]:
    """The rows of a batch; what has no rows is as it is."""
    return [rows_between(given, size, number, number + 1) for number in range(size)]


def rows_between(given: Mapping[str, Any], size: int, start: int, stop: int) -> dict[str, Any]:
    """Some rows of a batch of this size; what has no rows is as it is."""

    def has_rows(value: Any) -> bool:
        is_list = isinstance(value, list) or (isinstance(value, torch.Tensor) and value.dim() > 0)
        return is_list and len(value) == size

    return {name: value[start:stop] if has_rows(value) else value for name, value in given.items()}


def _gradients(model: Any, given: Mapping[str, Any], options: Mapping[str, Any]) -> list[torch.Tensor]:
    loss = loss_in(model(**{**given, **options}))
    return [*torch.autograd.grad(loss, [*model.parameters()], allow_unused=True, materialize_grads=True)]
