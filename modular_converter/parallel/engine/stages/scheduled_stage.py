"""A stage for torch's schedules: tensors in by position, a tuple of tensors out, timed, and with late receives.

Each receive of a schedule is started as late as the order of messages allows. torch starts a receive as soon as the other
rank's send is known. A waiting receive keeps processors of a GPU busy: on two H200 a forward beside it took 17.1 ms
instead of 14.4. ``defer_pp_recv`` of torch 2.13 also reorders the receives, so that a rank takes one message for another:
gradients of ZBV over two ranks were wrong. Here the messages of a rank keep their order, and computations that need none
of the waiting receives go before them.

Weights that several processes of a pipeline have, such as an embedding that is also the head, get the sum of their gradients.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import pipelining
from torch.distributed.tensor import DTensor

from modular_converter.parallel.choice.skeleton import META
from modular_converter.parallel.engine.base.watched_state import WatchedState
from modular_converter.parallel.engine.group.same_calls import everywhere
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.modules import is_plain
from modular_converter.parallel.pipeline.flow import LayerFlow
from modular_converter.parallel.pipeline.stage import StageModule
from modular_converter.parallel.schedule.forecast import Timed
from modular_converter.parallel.schedule.orders import Action, Work
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.torch_private import pytree


_ARRIVES = {"FORWARD": "RECV_F", "FULL_BACKWARD": "RECV_B", "BACKWARD_INPUT": "RECV_B"}
"""Computation -> the receive of its input."""
_SENDS = ("SEND_F", "SEND_B")


def with_late_receives(schedule: Any) -> Any:
    """The schedule with its receives deferred; GPipe and 1F1B, whose orders list no messages, are unchanged."""
    orders = getattr(schedule, "pipeline_order_with_comms", None)
    if orders is not None:
        schedule.pipeline_order_with_comms = {rank: late_receives(order) for rank, order in orders.items()}
    return schedule


def late_receives(order: Iterable[Any]) -> list[Any]:
    """The actions of one rank; each receive comes just before the next send, or the computation that needs it."""
    found: list[Any] = []
    waiting: list[Any] = []
    for action in order:
        kind = action.computation_type.name
        if kind in _ARRIVES.values():
            waiting.append(action)
            continue
        if kind in _SENDS or any(_takes(one, waiting) for one in action.sub_actions or (action,)):
            found += waiting
            waiting = []
        found.append(action)
    return found + waiting


def _takes(action: Any, waiting: Iterable[Any]) -> bool:
    """Whether a computation needs one of the waiting receives."""
    needed = (_ARRIVES.get(action.computation_type.name), action.stage_index, action.microbatch_index)
    return any((one.computation_type.name, one.stage_index, one.microbatch_index) == needed for one in waiting)


class Clock:
    """Points in time of a device.

    On a GPU these are events in its stream, which time the work and not its launch; work after a transfer starts when the
    data has arrived.
    """

    def __init__(self, device: torch.device) -> None:
        self._is_gpu = device.type == "cuda"

    def now(self) -> Any:
        """The present point in time."""
        if not self._is_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def seconds(self, start: Any, end: Any) -> float:
        """Seconds between two points. Waits until the device has reached both."""
        if not self._is_gpu:
            return float(end - start)
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3


class ActionClock:
    """Records the actions of one process while it is on.

    Attributes:
        device: of the process.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._clock = Clock(device)
        self._is_on = False
        self._start: Any = None
        self._noted: list[tuple[Action, Any, Any]] = []

    @contextmanager
    def on(self) -> Iterator[None]:
        """Record actions within this context, and forget earlier ones."""
        self._noted, self._start, self._is_on = [], self._clock.now(), True
        try:
            yield
        finally:
            self._is_on = False

    @contextmanager
    def action(self, work: Work, stage: int, chunk: int) -> Iterator[None]:
        """Record an action, if the clock is on."""
        if not self._is_on:
            yield
            return
        began = self._clock.now()
        yield
        self._noted.append((Action(work, stage, chunk), began, self._clock.now()))

    def timed(self) -> tuple[Timed, ...]:
        """The recorded actions in order, with seconds since the clock was put on."""
        seconds = self._clock.seconds
        return tuple(Timed(one, seconds(self._start, a), seconds(self._start, b)) for one, a, b in self._noted)


class FirstError:
    """The first error of this process in a call, behind which its stages only pass zeros on: no other process waits for it.

    Args:
        alone: whether the process has its stages alone. Else others wait for it inside of them, and errors are not kept.
    """

    def __init__(self, alone: bool) -> None:
        self.alone = alone
        self.error: Exception | None = None

    def note(self, error: Exception) -> None:
        """Keep an error, or raise it."""
        if not self.alone:
            raise error
        self.error = self.error or error

    @property
    def ends_work(self) -> bool:
        """Whether stages compute nothing any more."""
        return self.alone and self.error is not None


class ClockedStage(pipelining.PipelineStage):
    """A stage of torch whose actions a clock records, and whose backwards end with the first error."""

    submod: ScheduledStage

    def __init__(self, *args: Any, clock: ActionClock, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.clock = clock

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        with self.clock.action(Work.FORWARD, self.stage_index, fwd_chunk_id):
            try:
                return super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
            except RuntimeError as error:
                raise _without_torch(error)  # noqa: B904

    def backward_one_chunk(
        self, bwd_chunk_id: int, loss: Any = None, full_backward: bool = True, last_backward: bool = False
    ) -> None:
        work = Work.BACKWARD if full_backward else Work.INPUT_BACKWARD
        with self.clock.action(work, self.stage_index, bwd_chunk_id), self._noted_errors() as works:
            if works:
                super().backward_one_chunk(bwd_chunk_id, loss, full_backward, last_backward)
        if self.submod.errors.ends_work:
            # torch 2.13 would send zeros for None, and earlier releases fail, for which the other processes wait.
            zeros = (
                torch.zeros_like(one, device=self.device) if one.requires_grad else None
                for one in self.submod.stage.takes
            )
            self.bwd_cache[bwd_chunk_id] = tuple(zeros)

    def backward_weight_one_chunk(self, bwd_chunk_id: int, last_backward: bool = False) -> None:
        with self.clock.action(Work.WEIGHT_BACKWARD, self.stage_index, bwd_chunk_id), self._noted_errors() as works:
            if works:
                super().backward_weight_one_chunk(bwd_chunk_id, last_backward)

    @contextmanager
    def _noted_errors(self) -> Iterator[bool]:
        errors = self.submod.errors
        try:
            yield not errors.ends_work
        except Exception as error:
            errors.note(_without_torch(error))


def _without_torch(error: Exception) -> Any:
    """The error of a stage, of which torch makes a ``RuntimeError`` with the forms of its arguments."""
    return error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error


# Values of an output that are the same for all micro-batches.
_PLAIN = (torch.Tensor, str, int, float, bool, type(None))


class ScheduledStage(torch.nn.Module):
    """A stage for torch's schedules. The last stage returns the tensors of the model's output, or of a part of it.

    torch keeps what the last stage returns until the backward of the micro-batch: for a loss alone not the logits, which
    were 250 to 500 MiB of a micro-batch of 4 x 1024 tokens and 32,000 to 64,000 words.

    Args:
        flow: of a micro-batch.
        errors: of this process.
        place: its device.
        part: from the model's output to what is needed of it, such as the loss.

    Attributes:
        inputs: of each micro-batch.
    """

    def __init__(
        self,
        stage: StageModule,
        flow: LayerFlow,
        errors: FirstError,
        place: torch.device,
        part: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__()
        self.stage, self.inputs, self.errors, self.place = stage, list[dict[str, Any]](), errors, place
        self._part = part or (lambda output: output)
        self._example = self._part(flow.output)
        leaves, self._form = pytree.tree_flatten(self._example)
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
        self._stored = WatchedState(stage.model, stored_alone=True)

    @property
    def gives(self) -> tuple[torch.Tensor, ...]:
        """Tensors with the shapes and types of the forward's result."""
        return self._distinct(self._example) if self.stage.is_last else self.stage.gives

    def forward(self, *received: torch.Tensor, micro_batch: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The tensors for the next stage, or those of the part of the model's output.

        Args:
            micro_batch: its number.
        """
        if not self.errors.ends_work:
            try:
                result = self.stage(*received, **self.inputs[int(micro_batch)])
                self._refuse_counts(int(micro_batch))
                tensors = self._distinct(self._part(result)) if self.stage.is_last else result
                # torch sends contiguous tensors, unlike a bias of t5, and detaches them in place, unlike the views of opt.
                return tuple((tensor if tensor._base is None else tensor.clone()).contiguous() for tensor in tensors)
            except Exception as error:
                self.errors.note(error)
        zeros = ((torch.zeros(t.shape, dtype=t.dtype, device=self.place), t.requires_grad) for t in self.gives)
        return tuple(zero.requires_grad_(trains) for zero, trains in zeros)

    def _refuse_counts(self, micro_batch: int) -> None:
        """Raise ``ApplyError`` for an attribute that each forward sets anew, such as the number of calls."""
        if micro_batch > 1:
            return
        stored = self._stored.differences()  # in the first micro-batch those with what the caller has set before
        counts = [one.where for one in stored if is_plain(one.value) and not one.is_buffer]
        if micro_batch and counts:
            raise ApplyError(
                f"a forward set {counts[0]} for each micro-batch, and one device sets it once for the batch: let forward set none, "
                "or give chunks=1"
            )

    def output(self, tensors: Any) -> Any:
        """The part of the model's output from its tensors."""
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


def own_loss(output: Any) -> Any:
    """The loss in a model's output: by its name, or the only number in it; None if there is none."""
    if isinstance(output, Mapping):
        return output.get("loss")
    parts = output if isinstance(output, (tuple, list)) else [output]
    numbers = [one for one in parts if isinstance(one, torch.Tensor) and not one.dim()]
    return numbers[0] if len(numbers) == 1 else None


@dataclass(frozen=True)
class SharedWeight:
    """A parameter that several processes of a group have.

    Attributes:
        ranks: global ranks of the holders, in order; the gradient's norm counts on the first.
    """

    name: str
    parameter: torch.nn.Parameter
    ranks: tuple[int, ...]


@dataclass(frozen=True)
class SharedWeights:
    """The weights that processes of a group share.

    Attributes:
        own: the shared weights of this process.
        names: of the shared weights of all processes.
        group: all processes with stages. A group of only the holders would get its name from the number of groups that a
            process has made, which may differ between the holders; they would wait for ever.
        device: of this process.
    """

    own: Sequence[SharedWeight]
    names: tuple[str, ...]
    group: dist.ProcessGroup
    device: torch.device

    def used(self) -> set[str]:
        """The names of the weights that have a gradient on any process."""
        with_gradient = {one.name for one in self.own if one.parameter.grad is not None}
        found = torch.tensor([float(name in with_gradient) for name in self.names], device=self.device)
        if self.names:
            dist.all_reduce(found, group=self.group)
        return {name for name, number in zip(self.names, found.tolist()) if number}


def shared_weights(
    own: Mapping[str, torch.nn.Parameter], group: dist.ProcessGroup, device: torch.device
) -> SharedWeights:
    """The shared weights of a group; all its processes must call it.

    Args:
        own: first name in the whole model -> parameter of this process's stages.
        device: of this process.
    """
    holders: dict[str, tuple[int, ...]] = {}
    for number, names in enumerate(everywhere(sorted(own), ProcessGroup(group))):
        for name in names:
            holders[name] = (*holders.get(name, ()), dist.get_global_rank(group, number))
    shared = tuple(name for name in sorted(holders) if len(holders[name]) > 1)
    mine = [SharedWeight(name, own[name], holders[name]) for name in shared if name in own]
    return SharedWeights(mine, shared, group, device)


@contextmanager
def summed_gradients(shared: SharedWeights) -> Iterator[None]:
    """Sum the gradients of a step over the holders of each weight, and add them to those of earlier steps.

    After a failed step, the gradients of earlier steps are unchanged.
    """
    earlier = [one.parameter.grad for one in shared.own]
    for one in shared.own:
        one.parameter.grad = None
    try:
        yield
        used = shared.used()
    except BaseException:
        for one, before in zip(shared.own, earlier):
            one.parameter.grad = before
        raise
    for one, before in zip(shared.own, earlier):
        if one.name not in used:
            one.parameter.grad = before
            continue
        gradient = torch.zeros_like(one.parameter) if one.parameter.grad is None else one.parameter.grad
        # In a layout, the holders have the same part of the weight.
        _sum(gradient.to_local() if isinstance(gradient, DTensor) else gradient, one, shared.group)
        one.parameter.grad = gradient if before is None else before.add_(gradient)


def _sum(gradient: torch.Tensor, one: SharedWeight, group: dist.ProcessGroup) -> None:
    """Sum a gradient over the holders of the weight, in place and in the same order on each."""
    own = gradient.contiguous()
    parts = {rank: own if rank == dist.get_rank() else torch.empty_like(own) for rank in one.ranks}
    calls = [
        dist.P2POp(call, tensor, rank, group)
        for rank, part in parts.items()
        if part is not own
        for call, tensor in ((dist.isend, own), (dist.irecv, part))
    ]
    for work in dist.batch_isend_irecv(calls):
        work.wait()
    total = parts[one.ranks[0]].clone()
    for rank in one.ranks[1:]:
        total += parts[rank]
    gradient.copy_(total)
