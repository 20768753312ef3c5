"""What a data rank computes from its part of a batch, and one process from the whole: the mean of a loss, buffers of statistics.

Gradients are means over data ranks. That is the gradient of the whole batch's loss if all parts count alike in it.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from modular_converter.parallel.choice.loss_of_parts import (
    divides_by_items,
    is_no_mean_of_parts,
    loss_in,
    refuse_mixed_rows,
    rows_between,
    single_rows,
)
from modular_converter.parallel.choice.small_instances import small_instance, small_settings, target_like
from modular_converter.parallel.engine.group.kept_gathered import layers_entered, will_accumulate
from modular_converter.parallel.engine.group.process_grid import ProcessGrid
from modular_converter.parallel.engine.group.same_calls import CallsOfAll, digest_of
from modular_converter.parallel.errors import ApplyError, BuildError, PlanError, one_line
from modular_converter.parallel.modules import is_of_library, is_plain
from modular_converter.parallel.proof.prove import small_copy
from modular_converter.parallel.tiny.arguments import inputs_by_name
from modular_converter.parallel.tiny.build import MOST_PARAMETERS, Small, copy_of
from modular_converter.parallel.tiny.inputs import examples_of
from modular_converter.parallel.torch_private import current_graph_task_id, pytree
from modular_converter.parallel.trace.record import forward_names
from modular_converter.parallel.trace.unchanged import same_attributes


logger = logging.getLogger(__name__)


# The label that a loss ignores, in transformers and in `torch.nn.functional.cross_entropy`.
_IGNORED = -100
_MOST_TRIED = 1e9  # weights of a module that is tried itself, of which a second copy is made meanwhile
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
"""Of a module: a copy of it without the numbers of its large weights, until a batch of several rows has all of its inputs."""
_SEVERAL = 2


def look_at_rows(model: torch.nn.Module) -> None:
    """Before a model is shared out over data ranks: its example inputs show whether rows depend on each other.

    A module of which they do not show it keeps a copy, if it is small, which batches of several rows show. Raises ``ApplyError`` if rows depend on
    each other, and warns about a module that is too large to be looked at.
    """
    examples, count = examples_of(model), sum(one.numel() for one in model.parameters())
    is_own = not is_of_library(model)
    if is_own and count > (MOST_PARAMETERS if examples is None else _MOST_TRIED):
        cure = "give example_inputs=, or try" if examples is None else "try"
        logger.warning(
            "%s: of %.0f million weights, it was not looked at whether its rows depend on each other, as behind a mean over the "
            "batch, with which data ranks would train otherwise than one device: %s a small instance",
            *(type(model).__name__, count / 1e6, cure),
        )
        return
    with contextlib.suppress(BuildError):  # it cannot be copied, or does not run alone
        if examples is not None and count > MOST_PARAMETERS:
            with same_attributes(model):
                _refuse_mixed(model, Small(type(model).__name__, "", model.eval(), inputs_by_name(model, examples)))
        elif examples is not None:
            _refuse_mixed(model, small_copy(model, examples))
        shown = _shown(examples)
        if is_own and count <= MOST_PARAMETERS and not (shown and shown >= {*forward_names(model)}):
            model.__dict__[_COPY] = kept = copy_of(model)
            for one in kept.parameters():
                if one.dim() > 1 and one.is_floating_point():  # which `small_copy` draws anew
                    one.data = one.new_zeros(()).expand(one.shape)


def _shown(given: Mapping[str, Any] | None) -> frozenset[str]:
    """The names of arguments with which a run tells whether rows depend on each other; none for a single row."""
    return (
        frozenset(n for n, one in (given or {}).items() if one is not None)
        if _rows_in(given or {}) > 1
        else frozenset()
    )


def _refuse_mixed(model: torch.nn.Module, small: Small, own: bool = True) -> None:
    """Refuse rows that depend on each other; of the library's models, tables of each row with each other one are as they are."""
    rows = single_rows(small.inputs, _rows_in(small.inputs))
    refuse_mixed_rows(model, small.model, small.inputs, rows, "data ranks", "leave ddp and fsdp out", own)


def _rows_in(given: Mapping[str, Any]) -> int:
    return next((len(one) for one in given.values() if isinstance(one, torch.Tensor) and one.dim()), 0)


class PartsOfBatch:
    """What the processes of a model compute from their parts of a batch, or of a sequence: they agree on it before each backward.

    Args:
        calls: of all these processes. Where each forward gathers weights, they begin it together, too; with copies of a
            model, a process may make forwards alone.
    """

    def __init__(self, model: torch.nn.Module, grid: ProcessGrid, calls: CallsOfAll) -> None:
        self.model, self.grid, self.calls, self.names = model, grid, calls, forward_names(model)
        self.buffers, self.means = WrittenBuffers(model.named_modules()), dict[Any, bool]()
        self.looked, self.layers = {_shown(examples_of(model))} - {frozenset()}, layers_entered(model)
        if grid.layout.shards > 1:
            calls.layers = {"": self.layers}

    def note(self, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any], settings: bytes) -> None:
        """After a forward with gradients: the processes are to compare what they have done when its backward begins.

        Args:
            settings: of the model, as ``known_settings`` has them.

        Raises ``ApplyError`` for a loss that is no mean over parts of a batch, and for rows that depend on each other.
        """
        loss = loss_in(result)
        counts = self._counts_of(loss, result, args, kwargs, settings) if self.grid.layout.data > 1 else None
        made = _Forward(self, [*self.layers], counts)
        for one in pytree.tree_leaves(result):
            if isinstance(one, torch.Tensor) and one.requires_grad and not one.is_leaf:
                one.register_hook(partial(made.meet, one is loss))  # type: ignore[no-untyped-call]

    def _counts_of(
        self, loss: Any, result: Any, args: Sequence[Any], kwargs: Mapping[str, Any], settings: bytes
    ) -> torch.Tensor | None:
        """What the mean of a loss divides by; None if the result has none, or the caller has given the number."""
        given = {**dict(zip(self.names, args)), **kwargs}
        self._look(given, args)
        labels: Any = given.get("labels")
        if not isinstance(loss, torch.Tensor) or loss.dim() or not loss.requires_grad:
            return None
        self._refuse_no_mean(labels, given, settings)
        if given.get("num_items_in_batch") is not None and self.divides(labels):
            return None
        if not isinstance(labels, torch.Tensor):
            return torch.tensor([_rows_in(given)], device=self.grid.place)
        return self._counts(labels, getattr(result, "logits", None))

    def _look(self, given: Mapping[str, Any], args: Sequence[Any]) -> None:
        """Refuse rows that depend on each other, in a small instance, or in a module's own copy and a batch of several."""
        kept = self.model.__dict__.get(_COPY)
        if kept is not None and not self.names:  # a forward of *args, **kwargs
            with contextlib.suppress(BuildError):
                given = {**inputs_by_name(kept, args), **given}
        size, shown = _rows_in(given), frozenset[str]() if kept is None else _shown(given)
        if shown in self.looked or kept is not None and not shown:
            return
        self.looked.add(shown)
        if kept is not None and shown >= {*self.names}:
            del self.model.__dict__[_COPY]
        try:
            if kept is None:
                small = small_instance(target_like(self.model), small_settings(self.model))
            else:
                few = pytree.tree_map(_copied, dict(given))
                made = copy_of(kept)
                for one in made.parameters():
                    one.data = one.data.contiguous()
                small = small_copy(made, rows_between(few, size, 0, _SEVERAL))
        except PlanError:  # there is none, or it does not run alone
            return
        _refuse_mixed(self.model, small, kept is not None)

    def divides(self, labels: Any) -> bool:
        """Whether the model's own loss divides by the ``num_items_in_batch`` that it is given."""
        form = "items", *_form(labels)
        if form not in self.means:
            self.means[form] = divides_by_items(self.model, labels)
        return self.means[form]

    def _refuse_no_mean(self, labels: Any, given: Mapping[str, Any], settings: bytes) -> None:
        options = {n: one for n, one in given.items() if n not in ("labels", "num_items_in_batch") and is_plain(one)}
        key = (settings, _form(labels), repr(sorted(options.items())))
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

    def averages(self) -> bool:
        """Whether the backward under way needs all processes: layers gather weights in it, or weights get gradients."""
        weights = (one for one in self.model.parameters() if one.requires_grad)
        return self.grid.layout.shards > 1 or any(map(will_accumulate, weights))

    def agree(self, layers: Sequence[str], counts: Sequence[float] | None) -> None:
        """Begin a backward of a forward together with all processes.

        Args:
            counts: what the mean of its loss divides by, and the gradient of the loss behind them.

        Raises ``ApplyError`` on all if one has done otherwise: computed other layers, written other numbers to a buffer, or
        weighed its labels otherwise than the whole batch does.
        """
        written = {name: digest_of(one) for name, one in self.buffers.since().items()}
        own = {"counts": counts, "written": written}
        found = self.calls.compare("part", json.dumps(own)) if len(self.calls.ranks) > 1 else None
        refused = None if found is None else _refused(found[0], json.loads(found[1]), own)
        method = "backward(create_graph=True)" if torch.is_grad_enabled() else "backward"
        self.calls.begin({}, refused, {"call": method}, layers)


def _copied(value: Any) -> Any:
    """An argument that the run of a copy may write to, or draw from."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    try:
        return value.clone_state() if isinstance(value, torch.Generator) else copy.deepcopy(value)
    except Exception as error:  # of the caller's object
        raise BuildError(f"a {type(value).__name__} cannot be copied: {one_line(error)}") from error


def _form(labels: Any) -> tuple[Any, ...]:
    return (labels.dim(), labels.is_floating_point()) if isinstance(labels, torch.Tensor) else (type(labels),)


class _Forward:
    """A forward, whose backward processes begin together."""

    def __init__(self, parts: PartsOfBatch, layers: Sequence[str], counts: torch.Tensor | None) -> None:
        self.parts, self.layers, self.counts = parts, layers, counts
        self.task = -1

    def meet(self, is_loss: bool, gradient: torch.Tensor) -> None:
        """Once in each backward, with the gradient of the first result that it reaches, which is the loss if it is in it."""
        if self.task == current_graph_task_id() or not self.parts.averages():
            return
        self.task, counts = current_graph_task_id(), None
        if is_loss and self.counts is not None:
            counts = torch.cat([self.counts.double(), gradient.detach().double().reshape(1)]).tolist()
        self.parts.agree(self.layers, counts)


def _refused(rank: int, other: Mapping[str, Any], own: Mapping[str, Any]) -> ApplyError | None:
    """The error of this process if it has done something else with its part of a batch than another one."""
    written, theirs = own["written"], other["written"]
    name = next((one for one in written | theirs if written.get(one) != theirs.get(one)), None)
    if name is not None:
        return ApplyError(
            f"a forward wrote {name} from its part of the batch, so data ranks would compute with other numbers in it: put its "
            "module into eval mode, take a norm of each row (LayerNorm, GroupNorm), on GPUs give parallelize the result "
            "of torch.nn.SyncBatchNorm.convert_sync_batchnorm(model), or leave ddp and fsdp out"
        )
    if other["counts"] is None or own["counts"] is None:
        return None
    return _of_unequal(other["counts"], own["counts"])


def _of_unequal(other: Sequence[float], own: Sequence[float]) -> ApplyError | None:
    """The error if the mean of two losses, each times its gradient, is not that of all labels."""
    numbers, factors = torch.tensor([other[:-1], own[:-1]]).double(), torch.tensor([other[-1:], own[-1:]]).double()
    products = numbers * factors.flip(0)
    if torch.allclose(products[0], products[1], rtol=_LEAST_DIFFERENCE, atol=0.0, equal_nan=True):
        return None
    worst = int((products[0] - products[1]).abs().argmax())
    if torch.equal(*numbers):
        return ApplyError(
            f"data ranks weigh losses of as many labels otherwise, {float(factors[0]):g} and {float(factors[1]):g} times, and the "
            "gradient is the mean over them: weigh all alike"
        )
    least, most = (int(one) for one in numbers[:, worst].aminmax())
    return ApplyError(
        f"data ranks have {least} to {most} labels that count, and the mean of their losses is not that of the batch: give "
        "the model num_items_in_batch= the number in the whole batch divided by model.layout.data, if its loss divides by it, or parts with as "
        "many labels"
    )
