"""A run of a model on tensors without data: the bytes that come and go, the work and the collectives, segment by segment.

A segment is one call of a layer, or the code between two calls. All sizes are those that torch's own operations and its
own autograd engine make on the meta device; no formula of an architecture is written down here.

The use of memory and work of each segment for any number of rows comes from two recordings of a part of the layers.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, NamedTuple

import torch

from modular_converter.parallel.choice.skeleton import META
from modular_converter.parallel.costs import FusedRun, NotedOperations, idle_weight, size_of
from modular_converter.parallel.errors import AdviceError, ApplyError, BuildError, one_line
from modular_converter.parallel.inference.plain_forwards import DirectGroup
from modular_converter.parallel.shard.collectives import FakeGroup
from modular_converter.parallel.torch_private import (
    DisableTorchFunctionSubclass,
    storage_number,
)
from modular_converter.parallel.trace.record import tensors_in


FORWARD, BACKWARD = "forward", "backward"
MOST_OPERATIONS = 300_000
"""The limit for one run, forward and backward; models that loop over their tokens exceed it."""


class Kernel(NamedTuple):
    """One operation.

    Attributes:
        flops: floating-point operations of its products.
        moved: bytes that it reads and writes; none of fused attention, which its products bound.
        masked: whether it is attention with a mask other than the plain causal one.
    """

    flops: float
    moved: float
    masked: bool = False


@dataclass
class SegmentRun:
    """One segment in one phase.

    Attributes:
        first: the number of events before it.
        kernels: the operations that are no views.
        gradients: bytes of the gradients of weights that it makes.
        result: bytes of what its layer returns.
    """

    phase: str
    segment: int
    first: int
    kernels: list[Kernel] = field(default_factory=list)
    collectives: list[Exchange] = field(default_factory=list)
    gradients: float = 0.0
    result: float = 0.0


@dataclass(frozen=True)
class Recording:
    """A whole run.

    Attributes:
        segments: the path of the layer that each segment calls; empty for the code between.
        stretches: in order of time; segments of the backward in reverse.
        events: bytes that came (positive) or went (negative), in order of time.
        result: bytes of the model's output, without caches.
    """

    segments: tuple[str, ...]
    stretches: tuple[SegmentRun, ...]
    events: tuple[float, ...]
    result: float

    def values(self) -> list[Any]:
        """As values that JSON has, from which ``of_values`` makes it again."""
        return [self.segments, [[*vars(one).values()] for one in self.stretches], self.events, self.result]

    @classmethod
    def of_values(cls, values: Sequence[Any]) -> Recording:
        """The recording of its plain values."""
        segments, stretches, events, result = values
        runs = []
        for phase, segment, first, kernels, calls, *sizes in stretches:
            made = [Kernel(*one) for one in kernels]
            runs.append(SegmentRun(phase, segment, first, made, [Exchange(*call) for call in calls], *sizes))
        return cls(tuple(segments), tuple(runs), tuple(events), result)


class Exchange(NamedTuple):
    """A collective.

    Attributes:
        size: bytes of the whole tensor; of an all-gather those of one rank's share.
        context: whether it is over the ranks that share out a sequence, and not over those that share each layer.
    """

    name: str
    size: float
    context: bool = False


class RecordedGroup(FakeGroup):
    """One rank of a group that does not exist; it makes the tensors that a real one makes, and notes its calls.

    Args:
        context: whether the ranks share out a sequence, and not each layer.
    """

    def __init__(self, size: int, context: bool = False) -> None:
        super().__init__(size)
        self.context = context
        self.note: Callable[[Exchange], None] | None = None

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        self.tell("all-reduce", tensor)
        return tensor.detach().clone(memory_format=torch.contiguous_format)

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        self.tell("all-gather", tensor)
        source = tensor.detach().contiguous()
        found = [torch.empty_like(source) for _ in range(self.size)]
        _together = source.new_empty((self.size, *source.shape))  # from which NCCL fills the list
        return found

    def sum_of_parts(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        self.tell("reduce-scatter", *parts)
        _together = parts[0].new_empty((self.size, *parts[0].shape))
        return torch.empty_like(parts[0])

    def tell(self, name: str, *tensors: torch.Tensor) -> None:
        """Note a call."""
        if self.note is not None:
            self.note(Exchange(name, size_of(tensors), self.context))


class RecordedDirectGroup(DirectGroup):
    """The same rank in the form for inference on GPUs, whose sums are in place."""

    def __init__(self, recorded: RecordedGroup) -> None:
        self.recorded, self.rank, self.size = recorded, recorded.rank, recorded.size
        self.meet, self.small, self.overlaps = (lambda: None), None, True
        self.handle, self.gather_options = self, None
        self.all_gather, self.sum_of_parts = recorded.all_gather, recorded.sum_of_parts  # type: ignore[method-assign]

    def reduce_in_place(self, tensor: torch.Tensor) -> None:
        self.recorded.tell("all-reduce", tensor)

    def sum_later(self, tensor: torch.Tensor) -> Any:
        self.reduce_in_place(tensor)
        return self

    def wait(self) -> None:
        """Of a sum that has been begun."""

    def _allgather_base(self, found: torch.Tensor, share: torch.Tensor, options: Any) -> None:
        self.recorded.tell("all-gather", share)


def record_run(
    model: Any,
    layers: Mapping[str, torch.nn.Module],
    inputs: Mapping[str, Any],
    groups: Sequence[RecordedGroup],
    trains: bool,
) -> Recording:
    """Run a model on the meta device, with its backward if it ``trains``.

    Args:
        layers: path -> layer.
        groups: of the ranks that the model's layers and its sequences are divided over.

    Raises ``ApplyError`` if the model does not run so divided, ``BuildError`` if the run fails without data, ``AdviceError`` if it has too many operations.
    """
    noted = _Notes(model, layers)
    for group in groups:
        group.note = noted.collective
    fused = FusedRun(noted.attention)
    try:
        with noted.hooks, torch.set_grad_enabled(trains), fused, META, NotedOperations(noted.operation):
            result = model(**inputs)
            left = _bytes(tensors_in(result))
            if trains:
                noted.turn()
                loss = loss_of(result)
                del result
                _backward(loss)
                del loss
        noted.close()
        if fused.guessed and (
            idle := idle_weight({path: layers[path] for path in noted.segments if path}, noted.account.taken)
        ):
            raise AdviceError(f"{type(model).__name__}: {idle}: whether it runs depends on values")
        if trains and fused.attention_dropout and any(group.size > 1 for group in groups):
            raise AdviceError(
                f"{type(model).__name__}: drops entries of its attention, which ranks that divide a layer draw as whole "
                "matrices; this memory is not predicted: set the rate to 0 with --set, or take a layout without tp and ep"
            )
    except (AdviceError, ApplyError, BuildError):
        raise
    except Exception as error:  # a model's own code may raise anything without data
        raise BuildError(f"{type(model).__name__}: its run fails without data: {one_line(error)}") from error
    finally:
        noted.account.open = False
        for group in groups:
            group.note = None
        model.zero_grad(set_to_none=True)
    return Recording(tuple(noted.segments), tuple(noted.stretches), tuple(noted.events), left)


def _backward(loss: torch.Tensor) -> None:
    """The backward of a loss by its edge: with the tensor itself, the modes would be off where layers run again."""
    edge, start = torch.autograd.graph.get_gradient_edge(loss), torch.ones_like(loss)
    torch.autograd.backward(edge, start)


def loss_of(result: Any) -> torch.Tensor:
    """The loss of the model, or the sum of its floating outputs."""
    loss = getattr(result, "loss", None)
    if isinstance(loss, torch.Tensor):
        return loss
    floating = [one for one in tensors_in(result) if one.is_floating_point() and one.requires_grad]
    if not floating:
        raise BuildError("its output has no gradient, so that it cannot be trained")
    return sum((one.float().mean() for one in floating), start=torch.zeros((), device=floating[0].device))


def _bytes(tensors: Iterable[torch.Tensor]) -> float:
    found = {storage_number(one): float(one.untyped_storage().nbytes()) for one in tensors}
    return sum(found.values())


class _Account:
    """The storages that have come and not gone, and the events of both.

    Args:
        state: tensors that are there throughout.
    """

    def __init__(self, state: Iterable[torch.Tensor]) -> None:
        self.events: list[float] = []
        self.held: dict[int, float] = {}
        self.taken: set[int] = set()
        self.state = {storage_number(one) for one in state}
        self.open = True
        self._refs: list[Any] = []

    def operation(self, given: list[torch.Tensor], results: list[torch.Tensor]) -> list[torch.Tensor]:
        """The results of an operation that are no views of what it was given; their storages have come."""
        known = {storage_number(one) for one in given}
        self.taken |= known
        new = [one for one in results if storage_number(one) not in known]
        for one in new:
            self._made(one)
        return new

    def _made(self, tensor: torch.Tensor) -> None:
        """A storage has come, unless it is known; note when it goes."""
        storage = tensor.untyped_storage()
        key, size = int(storage._cdata), float(storage.nbytes())
        if key in self.state or key in self.held or not size:
            return
        self.held[key] = size
        self.events.append(size)
        self._refs.append(weakref.ref(storage, lambda _: self._gone(key)))

    def _gone(self, key: int) -> None:
        size = self.held.pop(key, None)
        if size is not None and self.open:
            self.events.append(-size)


class _Notes:
    """What is noted in a run. Segments alternate: code between layers (even numbers), calls of layers (odd numbers)."""

    def __init__(self, model: torch.nn.Module, layers: Mapping[str, torch.nn.Module]) -> None:
        self.segments, self.phase, self.operations = [""], FORWARD, 0
        self.account = _Account((*model.parameters(), *model.buffers()))
        self.events = self.account.events
        self.stretches = [SegmentRun(FORWARD, 0, 0)]
        self.finished: list[float] = []
        self.hooks = contextlib.ExitStack()
        owners: list[Any] = [one for one in model.parameters() if one.requires_grad]  # torch has no types for hooks
        with DisableTorchFunctionSubclass():  # else a weight with a role registers it on what enters its region
            for one in owners:
                self.hooks.enter_context(one.register_post_accumulate_grad_hook(self._gradient))
        self.inside = 0
        for path, layer in layers.items():
            self.hooks.enter_context(layer.register_forward_pre_hook(self._entering(path), with_kwargs=True))
            self.hooks.enter_context(layer.register_forward_hook(self._left))

    def _entering(self, path: str) -> Callable[..., None]:
        def enter(module: Any, args: Any, kwargs: Any) -> None:
            if self.phase == FORWARD and not self.inside:
                self._watch(tensors_in((args, kwargs)), len(self.segments) - 1)
                self._begin(path)
            self.inside += 1

        return enter

    def _left(self, module: Any, args: Any, result: Any) -> None:
        self.inside -= 1
        if self.phase == FORWARD and not self.inside:
            tensors = tensors_in(result)
            self.stretches[-1].result = _bytes(tensors)
            self._watch(tensors, len(self.segments) - 1)
            self._begin("")

    def _watch(self, tensors: list[torch.Tensor], segment: int) -> None:
        """When the gradient of a tensor is known, the backward of a segment begins, unless an earlier one has."""

        def reached(gradient: torch.Tensor) -> None:
            if self.phase == BACKWARD and segment < self.stretches[-1].segment:
                self._next(segment)

        for tensor in tensors:
            if tensor.requires_grad and tensor.grad_fn is not None:
                tensor.register_hook(reached)  # type: ignore[no-untyped-call]

    def _begin(self, path: str) -> None:
        self.segments.append(path)
        self._next(len(self.segments) - 1)

    def _next(self, segment: int) -> None:
        """Begin a stretch; the gradients of weights leave the account of activations at the end of the one that made them."""
        self._hand_over()
        self.stretches.append(SegmentRun(self.phase, segment, len(self.events)))

    def _hand_over(self) -> None:
        self.events += [-size for size in self.finished]
        self.finished.clear()

    def turn(self) -> None:
        """The forward has ended."""
        self.phase = BACKWARD
        self._next(len(self.segments) - 1)

    def close(self) -> None:
        self._hand_over()
        self.account.open = False

    def _gradient(self, weight: torch.Tensor) -> None:
        """A weight has its gradient, which from now on counts as one, and not as a tensor in passing."""
        key = storage_number(weight.grad) if weight.grad is not None else 0
        if key in self.account.held:
            self.finished.append(self.account.held.pop(key))
            self.stretches[-1].gradients += self.finished[-1]
            self.account.state.add(key)

    def operation(self, func: Any, flops: float, given: list[torch.Tensor], results: list[torch.Tensor]) -> None:
        """Note an operation; views and questions about tensors cost nothing."""
        self.operations += 1
        if self.operations > MOST_OPERATIONS:
            raise AdviceError(
                f"a run takes more than {MOST_OPERATIONS} operations: the model loops over its tokens; give a smaller "
                "--sequence"
            )
        new = self.account.operation(given, results)
        if new and func.name() != "aten::empty" or results and func._schema.is_mutable:
            self.stretches[-1].kernels.append(Kernel(flops, size_of((*given, *results))))

    def attention(self, flops: float, masked: bool) -> None:
        self.stretches[-1].kernels.append(Kernel(flops, 0.0, masked))

    def collective(self, call: Exchange) -> None:
        self.stretches[-1].collectives.append(call)


class OperationCounter(NotedOperations):  # type: ignore[no-untyped-call]
    """A context that counts operations and the most bytes of new tensors at once.

    Args:
        state: tensors that are there before.
    """

    def __init__(self, state: Iterable[torch.Tensor]) -> None:
        super().__init__(self._operation)
        self._account = _Account(state)
        self.kernels: list[Kernel] = []

    @property
    def peak(self) -> float:
        """The most bytes at once."""
        return max(accumulate(self._account.events, initial=0.0))

    def _operation(self, func: Any, flops: float, given: list[torch.Tensor], results: list[torch.Tensor]) -> None:
        self._account.operation(given, results)
        self.kernels.append(Kernel(0.0, size_of(one for one in (*given, *results) if one.is_meta)))


BLOCK = 512
"""torch's allocator for GPUs rounds each tensor up to a multiple of so many bytes."""


@dataclass(frozen=True)
class StretchUse:
    """A segment in one phase, in bytes beyond those at its start.

    Attributes:
        peak: the most at once, with the gradients of weights that it makes.
        net: at its end; in the backward without the gradients of weights.
        gradients: of weights.
        result: that its layer returns.
    """

    peak: float = 0.0
    net: float = 0.0
    gradients: float = 0.0
    result: float = 0.0
    kernels: tuple[Kernel, ...] = ()
    collectives: tuple[Exchange, ...] = ()


@dataclass(frozen=True)
class SegmentUse:
    """A segment: the path of its layer (empty for the code between layers), its forward and its backward."""

    path: str
    forward: StretchUse
    backward: StretchUse


@dataclass(frozen=True)
class RunUse:
    """A whole run of a number of rows.

    Attributes:
        segments: of all layers of the model, in order.
        result: bytes of the output.
    """

    segments: tuple[SegmentUse, ...]
    result: float

    @property
    def kept(self) -> float:
        """Bytes of activations at the end of the forward."""
        return sum(one.forward.net for one in self.segments)


@dataclass(frozen=True)
class Recordings:
    """Two recordings of the same run with different numbers of rows, and what stands for the layers that they leave out.

    Attributes:
        rows: of both recordings.
        alike: path of a layer -> path of the recorded one that stands for its kind, in the model's order; of the lists of
            which layers were left out.
    """

    rows: tuple[int, int]
    both: tuple[Recording, Recording]
    alike: Mapping[str, str]

    def at(self, rows: int) -> RunUse:
        """The use of a run with so many rows: sizes are straight lines through the two recordings."""
        first, second = self.both
        if len(first.events) != len(second.events) or first.segments != second.segments:
            raise BuildError("its run does other operations with more rows, so that its memory cannot be scaled")
        (low, high), scale = self.rows, _line(self.rows, rows)
        assert low < high
        events = [_rounded(scale(a, b)) for a, b in zip(first.events, second.events)]
        uses: dict[tuple[str, int], StretchUse] = {}
        ends = [one.first for one in first.stretches[1:]] + [len(events)]
        for a, b, end in zip(first.stretches, second.stretches, ends):
            found = _use(a, b, events[a.first : end], scale)
            known = uses.get((a.phase, a.segment))
            uses[a.phase, a.segment] = found if known is None else _joined(known, found)
        nothing = StretchUse()
        segments = [
            SegmentUse(path, uses.get((FORWARD, n), nothing), uses.get((BACKWARD, n), nothing))
            for n, path in enumerate(first.segments)
        ]
        return RunUse(tuple(_with_all_layers(segments, self.alike)), scale(first.result, second.result))


Scale = Callable[[float, float], float]


def _line(known: tuple[int, int], rows: int) -> Scale:
    """The value at ``rows`` of the line through two values; no size is below nothing."""
    part = (rows - known[0]) / (known[1] - known[0])

    def scale(first: float, second: float) -> float:
        found = first + (second - first) * part
        return found if first < 0 or found > 0 else 0.0

    return scale


def _rounded(size: float) -> float:
    return (1 if size > 0 else -1) * -(-abs(size) // BLOCK) * BLOCK


def _use(first: SegmentRun, second: SegmentRun, events: Sequence[float], scale: Scale) -> StretchUse:
    sums = list(accumulate(events, initial=0.0))
    kernels = tuple(
        Kernel(scale(a.flops, b.flops), scale(a.moved, b.moved), a.masked)
        for a, b in zip(first.kernels, second.kernels)
    )
    calls = tuple(a._replace(size=scale(a.size, b.size)) for a, b in zip(first.collectives, second.collectives))
    made = scale(first.gradients, second.gradients), scale(first.result, second.result)
    return StretchUse(max(sums), sums[-1], *made, kernels, calls)


def _joined(first: StretchUse, second: StretchUse) -> StretchUse:
    return StretchUse(
        max(first.peak, first.net + second.peak),
        first.net + second.net,
        first.gradients + second.gradients,
        max(first.result, second.result),
        first.kernels + second.kernels,
        first.collectives + second.collectives,
    )


def _with_all_layers(segments: Sequence[SegmentUse], alike: Mapping[str, str]) -> list[SegmentUse]:
    """The segments, with a copy of a recorded layer's segment, and of the code before it, for each layer left out.

    The last recorded layers become the last of all, if these are of the same kinds; else copies follow them.
    """
    place = {one.path: number for number, one in enumerate(segments) if one.path}
    lists: dict[str, list[str]] = {}
    for path, known in alike.items():
        if known in place:  # else a tower without inputs
            lists.setdefault(path.rpartition(".")[0], []).append(path)
    after: dict[int, list[SegmentUse]] = {}
    names: dict[int, str] = {}
    for members in lists.values():
        recorded = [path for path in members if path in place]
        first = max(recorded.index(alike[path]) for path in members) + 1
        last = members[len(members) - len(recorded) + first :]
        if [alike[one] for one in recorded[first:]] == [alike[one] for one in last]:
            names |= {place[one]: path for one, path in zip(recorded[first:], last)}
        else:
            first, last = len(recorded), []
        copies = after[place[recorded[first - 1]]] = []
        for path in members[first : len(members) - len(last)]:
            number = place[alike[path]]
            copies += [segments[number - 1], replace(segments[number], path=path)]
    found = []
    for number, one in enumerate(segments):
        found.append(replace(one, path=names.get(number, one.path)))
        found += after.get(number, [])
    return found
