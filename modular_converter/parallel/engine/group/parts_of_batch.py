"""What a data rank computes from its part of a batch, and one process from the whole: the mean of a loss, buffers of statistics.

Gradients are means over data ranks. That is the gradient of the whole batch's loss if all parts count alike in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from modular_converter.parallel.choice.loss_of_parts import (
    is_no_mean_of_parts,
    loss_in,
    refuse_mixed_rows,
    rows_between,
    single_rows,
)
from modular_converter.parallel.choice.small_instances import small_instance, small_settings, target_like
from modular_converter.parallel.engine.group.process_grid import ProcessGrid
from modular_converter.parallel.engine.group.same_calls import digest_of, everywhere
from modular_converter.parallel.errors import ApplyError, BuildError, PlanError
from modular_converter.parallel.modules import is_plain
from modular_converter.parallel.proof.prove import inputs_by_name, small_copy
from modular_converter.parallel.tiny.build import MOST_PARAMETERS, Small, copy_of
from modular_converter.parallel.tiny.inputs import examples_of
from modular_converter.parallel.trace.record import forward_names


# The label that a loss ignores, in transformers and in `torch.nn.functional.cross_entropy`.
_IGNORED = -100
_LEAST_DIFFERENCE = 1e-6  # of weights; a GPU may round the gradient of a loss


def label_counts(labels: torch.Tensor) -> torch.Tensor:
    """The numbers of labels of which a loss may be the mean: of all, and of all but the first of each row.

    Causal models ignore the first label of a row.
    """
    some = [labels, labels[:, 1:]] if labels.dim() == 2 else [labels]
    return torch.stack([(one != _IGNORED).sum() for one in some])


class WrittenBuffers:
    """Which modules' buffers have got other numbers since the last look."""

    def __init__(self, modules: Iterable[tuple[str, torch.nn.Module]]) -> None:
        self.owners = {path: module._buffers for path, module in modules if module._buffers}
        self.states = self._now()

    def _now(self) -> dict[str, list[tuple[torch.Tensor | None, int]]]:
        return {
            path: [(one, 0 if one is None or one.is_inference() else one._version) for one in buffers.values()]
            for path, buffers in self.owners.items()
        }

    def since(self) -> dict[str, torch.Tensor]:
        """All buffers of these modules by name: a batch norm counts its calls, and torch does not note its other writes."""
        before, self.states = self.states, self._now()
        return {
            f"{path}.{name}" if path else name: one
            for path, buffers in self.owners.items()
            if _differ(before[path], self.states[path])
            for name, one in buffers.items()
            if one is not None
        }


def _differ(old: Sequence[tuple[torch.Tensor | None, int]], new: Sequence[tuple[torch.Tensor | None, int]]) -> bool:
    """Whether tensors were written, or are others with other numbers."""
    if len(old) != len(new):
        return True
    pairs = [(a, b) for a, b in zip(old, new) if a[0] is not b[0] or a[1] != b[1]]
    return any(a is b or a is None or b is None or not torch.equal(a, b) for (a, _), (b, _) in pairs)


_COPY = "_copy_without_batch"
"""Of a module: a copy of it, until its first batch of several rows."""
_SEVERAL = 2


def look_at_rows(model: torch.nn.Module) -> None:
    """Before a model is shared out over data ranks: its example inputs show whether rows depend on each other.

    A module without them keeps a copy, which the first batch shows. Raises ``ApplyError`` if rows depend on each other.
    """
    examples = examples_of(model)
    with contextlib.suppress(BuildError):  # too large for a copy, or it cannot be copied
        if examples is not None:
            _refuse_mixed(model, small_copy(model, examples))
        elif (
            not hasattr(getattr(model, "config", None), "model_type")
            and sum(one.numel() for one in model.parameters()) <= MOST_PARAMETERS
        ):
            model.__dict__[_COPY] = copy_of(model)


def _refuse_mixed(model: torch.nn.Module, small: Small, own: bool = True) -> None:
    """Refuse rows that depend on each other; of the library's models, tables of each row with each other one are as they are."""
    rows = single_rows(small.inputs, _rows_in(small.inputs))
    refuse_mixed_rows(model, small.model, small.inputs, rows, "data ranks", "leave ddp and fsdp out", own)


def _rows_in(given: Mapping[str, Any]) -> int:
    return next((len(one) for one in given.values() if isinstance(one, torch.Tensor) and one.dim()), 0)


class PartsOfBatch:
    """The losses and buffers of the processes of a model with data ranks."""

    def __init__(self, model: torch.nn.Module, grid: ProcessGrid) -> None:
        self.model, self.grid, self.names = model, grid, forward_names(model)
        self.buffers, self.means = WrittenBuffers(model.named_modules()), dict[Any, bool]()
        self.looked = examples_of(model) is not None

    def weigh(self, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any], settings: bytes) -> None:
        """After a forward: the backward of its loss is to compare how much this process's labels count with the others.

        Args:
            settings: of the model, as ``known_settings`` has them.

        Raises ``ApplyError`` for a loss that is no mean over parts of a batch, and for rows that depend on each other.
        """
        given = {**dict(zip(self.names, args)), **kwargs}
        if not self.looked:
            self._look(given, args)
        labels: Any = given.get("labels")
        loss: Any = loss_in(result)
        is_loss = isinstance(loss, torch.Tensor) and not loss.dim() and loss.requires_grad
        if not is_loss:
            return
        self._refuse_no_mean(labels, given, settings)
        if isinstance(labels, torch.Tensor) and given.get("num_items_in_batch") is None:
            loss.register_hook(partial(self.refuse_unequal, self._counts(labels, getattr(result, "logits", None))))

    def _look(self, given: Mapping[str, Any], args: Sequence[Any]) -> None:
        """Refuse rows that depend on each other, in a small instance, or in a module's own copy and its first batch of several."""
        copy = self.model.__dict__.get(_COPY)
        if copy is not None and not self.names:  # a forward of *args, **kwargs
            with contextlib.suppress(BuildError):
                given = {**inputs_by_name(copy, args), **given}
        size = _rows_in(given)
        self.looked = copy is None or size >= _SEVERAL
        if not self.looked:
            return
        try:
            if copy is None:
                small = small_instance(target_like(self.model), small_settings(self.model))
            else:
                few = {name: one.cpu() if isinstance(one, torch.Tensor) else one for name, one in given.items()}
                small = small_copy(copy, rows_between(few, size, 0, _SEVERAL))
        except PlanError:  # there is none, or it does not run alone
            return
        finally:
            self.model.__dict__.pop(_COPY, None)
        _refuse_mixed(self.model, small, copy is not None)

    def _refuse_no_mean(self, labels: Any, given: Mapping[str, Any], settings: bytes) -> None:
        options = {n: one for n, one in given.items() if n not in ("labels", "num_items_in_batch") and is_plain(one)}
        form = (labels.dim(), labels.is_floating_point()) if isinstance(labels, torch.Tensor) else type(labels)
        key = (settings, form, repr(sorted(options.items())))
        if key not in self.means:
            self.means[key] = not is_no_mean_of_parts(self.model, labels, options)
        if not self.means[key]:
            raise ApplyError(
                "the model's loss is not the mean of the losses of parts of the batch, as a sum, a comparison of rows and the "
                "balance of experts are not, so data ranks would train otherwise than one device: leave ddp and fsdp out, switch "
                "that part of the loss off (such as output_router_logits), or compute a loss of the parts from the outputs, "
                "without labels, where the mean of those is meant"
            )

    def _counts(self, labels: torch.Tensor, scores: Any) -> torch.Tensor:
        """What a mean divides by: labels where each has scores, else rows. Of scores cp has this process's part."""
        each = scores is None or self.grid.context is not None or scores.shape[: labels.dim()] == labels.shape
        if labels.is_floating_point() or not each:
            return torch.tensor([len(labels)], device=self.grid.place)
        return label_counts(labels.to(self.grid.place))

    def refuse_unequal(self, counts: torch.Tensor, gradient: torch.Tensor) -> None:
        """Raise ``ApplyError`` if the mean of the losses, each times its gradient, is not that of all labels."""
        own = torch.cat([counts.double(), gradient.detach().double().reshape(1)])
        found = [torch.empty_like(own) for _ in range(self.grid.everyone.size)]
        dist.all_gather(found, own, group=self.grid.everyone.group)
        table = torch.stack(found).cpu()
        numbers, factors = table[:, :-1], table[:, -1:]
        products = torch.stack([numbers * factors[:1], numbers[:1] * factors])
        if not torch.allclose(products[0], products[1], rtol=_LEAST_DIFFERENCE, atol=0.0, equal_nan=True):
            worst = int((products[0] - products[1]).abs().amax(0).argmax())
            least, most = (int(one) for one in numbers[:, worst].aminmax())
            raise ApplyError(
                f"data ranks have {least} to {most} labels that count, and the mean of their losses is not that of the batch: give "
                "the model num_items_in_batch= the number in the whole batch divided by model.layout.data, or parts with as "
                "many labels"
            )

    def refuse_written(self) -> None:
        """After a forward with gradients: raise ``ApplyError`` if it wrote other numbers to a buffer than on other processes."""
        written = self.buffers.since()
        if not written:
            return
        found = everywhere({name: digest_of(one) for name, one in written.items()}, self.grid.everyone)
        other = next((name for name in written if len({one.get(name) for one in found}) > 1), None)
        if other is not None:
            raise ApplyError(
                f"a forward wrote {other} from its part of the batch, so data ranks would compute with other numbers in it: put its "
                "module into eval mode, take a norm of each row (LayerNorm, GroupNorm), on GPUs give parallelize the result "
                "of torch.nn.SyncBatchNorm.convert_sync_batchnorm(model), or leave ddp and fsdp out"
            )
