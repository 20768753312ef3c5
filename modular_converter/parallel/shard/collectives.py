"""Collectives with gradients over ranks: processes (gloo, nccl), or threads of one process.

Also for activations that are divided along the sequence, between regions that need the whole sequence. A whole tensor has
its complete gradient on every rank, a part has the gradient of its own entries.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, NoReturn, Protocol
from weakref import ref

import torch
import torch.distributed as dist

from modular_converter.parallel import torch_private
from modular_converter.parallel.errors import ApplyError, RankError
from modular_converter.parallel.torch_private import (
    current_graph_task_id,
    execution_engine,
    functorch_is_active,
    is_legacy_batchedtensor,
)


class Group(Protocol):
    """Ranks with the same inputs. All ranks must make the same calls in the same order."""

    rank: int
    size: int

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over the ranks, as a new tensor of the same shape."""

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The tensors of all ranks, in order of rank."""

    def sum_of_parts(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """The reduce-scatter of tensors of the same shape: rank ``n`` gets the sum over the ranks of ``parts[n]``."""


class Restorable(Protocol):
    """A saved state of the process."""

    def give_back(self) -> object:
        """Restore the state."""


class ProcessGroup:
    """Ranks of ``torch.distributed``; the default group unless one is given.

    Args:
        meet: called before each collective outside of compiled graphs.

    Attributes:
        before_part: called where a part of a model reads a weight outside of the model's forward.
    """

    before_part: Callable[[], None] = staticmethod(lambda: None)

    def __init__(self, group: dist.ProcessGroup | None = None, meet: Callable[[], None] = lambda: None) -> None:
        self.group, self.meet = group, meet
        self.handle: Any = group or dist.group.WORLD
        self.options = options_of(torch_private.AllreduceOptions(), False)
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        self.meet()
        result = tensor.detach().clone(memory_format=torch.contiguous_format)
        if torch.compiler.is_dynamo_compiling():
            dist.all_reduce(result, group=self.group)
        else:
            self.reduce_in_place(result)
        return result

    def reduce_in_place(self, tensor: torch.Tensor) -> None:
        """The sum over the ranks, without the dozen Python functions of ``dist.all_reduce``."""
        work = self.handle.allreduce([torch.view_as_real(tensor) if tensor.is_complex() else tensor], self.options)
        if work is not None:
            work.wait()

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        self.meet()
        source = tensor.detach().contiguous()
        pieces = [torch.empty_like(source) for _ in range(self.size)]
        dist.all_gather(pieces, source, group=self.group)
        return pieces

    def sum_of_parts(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        self.meet()
        result = torch.empty_like(parts[0])
        dist.reduce_scatter(result, list(parts), group=self.group)
        return result

    def from_first(self, tensor: torch.Tensor) -> torch.Tensor:
        """The first rank's tensor, without gradients; the tensors of all ranks have the same shape and type."""
        self.meet()
        result = tensor.detach().clone(memory_format=torch.contiguous_format)
        sent = result.view(torch.uint8) if result.dtype == torch.bool else result  # gloo has no booleans
        dist.broadcast(sent, group=self.group, group_src=0)
        return result


def options_of(options: Any, later: bool) -> Any:
    """Options of a collective on the current stream, without events before and after; ``later`` for one that is waited for."""
    if hasattr(options, "asyncOp"):
        options.asyncOp = later
    return options


class FakeGroup:
    """One rank of a group that does not exist, as torch's "fake" backend: results have the right shapes, not values."""

    def __init__(self, size: int, rank: int = 0) -> None:
        self.rank, self.size = rank, size

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return [tensor] * self.size

    def sum_of_parts(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        return parts[self.rank].clone()


class ThreadBoard:
    """The exchange of tensors between ranks that are threads: each rank stores its tensor, all wait, all read.

    Calls have labels, so that different calls raise an error instead of mixing numbers. A rank that fails breaks the
    barrier, so that no other rank waits for ever. Between two collectives one rank computes at a time, with a random
    state of its own: torch has one default generator for all threads, and each rank must draw the same numbers as in a
    process of its own. The same holds for any other state that threads share and processes do not.

    Args:
        take: saves this other state.
    """

    def __init__(self, size: int, take: Callable[[], Restorable] | None = None) -> None:
        self.size = size
        self.take = take
        self.slots: list[tuple[str, torch.Tensor] | None] = [None] * size
        self.barrier = threading.Barrier(size, timeout=60.0)
        self.turn = threading.Lock()

    def meet(self, rank: int, label: str, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The tensors of all ranks, in order. Raises ``RankError`` if the ranks make different calls."""
        self.slots[rank] = (f"{label} {tuple(tensor.shape)}", tensor.detach())
        random, taken = torch.get_rng_state(), self.take() if self.take else None
        self.turn.release()
        try:
            self.barrier.wait()
            found = [slot for slot in self.slots if slot is not None]
            labels = {name for name, _ in found}
            self.barrier.wait()
        except threading.BrokenBarrierError as error:
            raise RankError("another rank failed, or the ranks make different numbers of collectives") from error
        finally:
            self.turn.acquire()
            torch.set_rng_state(random)
            if taken is not None:
                taken.give_back()
        if len(labels) > 1:
            raise RankError(f"the ranks make different calls: {' against '.join(sorted(labels))}")
        return [value for _, value in found]


class ThreadGroup:
    """One rank of a ``ThreadBoard``."""

    def __init__(self, board: ThreadBoard, rank: int) -> None:
        self.board = board
        self.rank = rank
        self.size = board.size

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        return torch.stack(self.board.meet(self.rank, "all_reduce", tensor)).sum(0).to(tensor.dtype)

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return self.board.meet(self.rank, "all_gather", tensor)

    def sum_of_parts(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        found = self.board.meet(self.rank, "reduce_scatter", torch.stack([*parts]))
        return torch.stack([one[self.rank] for one in found]).sum(0).to(parts[0].dtype)


def run_on_threads(
    ranks: int, work: Callable[[ThreadGroup], bool], take: Callable[[], Restorable] | None = None
) -> None:
    """Run ranks as threads, one at a time between two collectives, until all have ended. Raises the error of a rank.

    Args:
        work: runs one rank; returns whether it has failed, so that the other ranks do not wait for it.
        take: saves the state of the process that each rank has for itself; all ranks begin with the present state.
    """
    board = ThreadBoard(ranks, take=take)
    present = take() if take else None
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        failed = True
        try:
            with board.turn:
                if present is not None:
                    present.give_back()
                failed = work(ThreadGroup(board, rank))
        except BaseException as error:  # otherwise a rank without a result would count as successful
            errors.append(error)
        if failed:
            board.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if present is not None:
        present.give_back()
    if errors:
        raise errors[0]


# A linear exchange of a tensor over a group, such as a sum or a gather; ``given`` are its further arguments.
Exchange = Callable[..., torch.Tensor]


class _Exchanged(torch.autograd.Function):
    """An exchange whose gradient is another exchange, and the gradient of that one the first again.

    So derivatives of any order are exchanges. Sums leave a sharded region and copies enter it, a gather leaves it and a
    cut enters it; each is the other's transpose, since a whole tensor has its complete gradient on every rank.
    """

    @staticmethod
    def forward(
        ctx: Any, tensor: torch.Tensor, group: Any, there: Exchange, back: Exchange, given: Any, known: Any
    ) -> torch.Tensor:
        ctx.group, ctx.there, ctx.back, ctx.given = group, there, back, given
        return there(tensor, group, *given) if known is None else known.view_as(known)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        rest = (None,) * 5
        if not torch.compiler.is_dynamo_compiling():
            if is_legacy_batchedtensor(gradients[0]):
                _refuse_batched()
            if torch.is_grad_enabled() or functorch_is_active():
                return exchanged(gradients[0], ctx.group, ctx.back, ctx.there, *ctx.given), *rest
        return ctx.back(gradients[0], ctx.group, *ctx.given), *rest

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor, *_: Any) -> torch.Tensor:
        if is_legacy_batchedtensor(tangent):
            _refuse_batched()
        return exchanged(tangent, ctx.group, ctx.there, ctx.back, *ctx.given)


def _refuse_batched() -> NoReturn:
    """Raise ``ApplyError`` for several gradients at once in the old form, which runs each operation of a backward batched."""
    raise ApplyError(
        "several gradients at once (vectorize=True, is_grads_batched=True) do not go through sums between processes: "
        "leave it out, or take torch.func.jacrev"
    )


class _Transformed(_Exchanged):
    """The same under ``torch.func``, in the form that it asks for; torch needs 15 microseconds more for a call of it."""

    @staticmethod
    def forward(  # type: ignore[override]
        tensor: torch.Tensor, group: Any, there: Exchange, back: Exchange, given: Any, known: Any
    ) -> torch.Tensor:
        return there(tensor, group, *given)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        _, ctx.group, ctx.there, ctx.back, ctx.given, _ = inputs

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, tensor: torch.Tensor, group: Any, there: Any, back: Any, given: Any, _: Any
    ) -> Any:
        """One exchange of all samples: their dimension goes last, where exchanges along a dimension do not see it."""
        last = tensor.movedim(in_dims[0], -1)
        return exchanged(last, group, there, back, *given), tensor.dim() - 1


def under_transforms() -> bool:
    """Whether a transform of ``torch.func`` is active, or a vectorised backward."""
    return not torch.compiler.is_dynamo_compiling() and functorch_is_active()


def exchanged(
    tensor: torch.Tensor, group: Any, there: Exchange, back: Exchange, *given: Any, known: torch.Tensor | None = None
) -> torch.Tensor:
    """The result of an exchange, differentiable any number of times.

    Args:
        there: gives the result from ``(tensor, group, *given)``.
        back: its transpose, with the same arguments, for gradients.
        known: the result, if it is known already.
    """
    if torch.compiler.is_dynamo_compiling():
        apply = _Exchanged.apply
    else:
        apply = _Transformed.apply if functorch_is_active() else exchanged_now
    return apply(tensor, group, there, back, given, known)  # type: ignore[no-any-return,no-untyped-call]


# The same outside of compiled code and of transforms, without the ten Python functions with which `apply` looks for
# tensors of a transform that has ended.
exchanged_now: Any = super(torch.autograd.Function, _Exchanged).apply


def same(tensor: torch.Tensor, group: Group, *given: Any) -> torch.Tensor:
    """The tensor itself, as a new one: the transpose of a sum over ranks."""
    return tensor.view_as(tensor)


def sum_of_all(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """The sum over the ranks."""
    return group.all_reduce(tensor)


def joined_shares(tensor: torch.Tensor, group: Group, dim: int, borders: Sequence[int]) -> torch.Tensor:
    """The shares of all ranks, joined along a dimension; ``borders`` as in `borders_of`."""
    return torch.cat(all_shares(tensor, group, dim, [last - first for first, last in pairwise(borders)]), dim)


def own_share(tensor: torch.Tensor, group: Group, dim: int, borders: Sequence[int]) -> torch.Tensor:
    """This rank's entries of a whole tensor: the transpose of ``joined_shares``."""
    first, last = borders[group.rank : group.rank + 2]
    return tensor.narrow(dim, first, last - first)


def all_shares(tensor: torch.Tensor, group: Group, dim: int, lengths: Sequence[int]) -> list[torch.Tensor]:
    """The shares of all ranks, in order of rank. Shorter shares are padded for the all-gather.

    Args:
        lengths: of the shares of all ranks along ``dim``.
    """
    most = max(lengths)
    if min(lengths) == most:
        return group.all_gather(tensor)
    if tensor.shape[dim] < most:
        shape = list(tensor.shape)
        shape[dim] = most - tensor.shape[dim]
        tensor = torch.cat([tensor.detach(), tensor.new_zeros(shape)], dim)
    return [share.narrow(dim, 0, length) for share, length in zip(group.all_gather(tensor), lengths)]


def borders_of(lengths: Sequence[int]) -> tuple[int, ...]:
    """The first entry of each rank, then the length of the whole axis, from the lengths of the shares."""
    return (0, *accumulate(lengths))


# The attribute of a group with the tensor that entered last, its version, and the tensor inside the region.
_ENTERED = "_entered"


def enter(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Take a whole tensor into a sharded region: the identity forward, an all-reduce of the gradient backward.

    Successive uses of a tensor, such as query, key and value, share one all-reduce: their gradients are added up first.
    """
    traced = torch.compiler.is_dynamo_compiling()
    transformed = not traced and functorch_is_active()  # a tensor without gradients here may have them in an outer one
    if not tensor.requires_grad and not transformed:
        return tensor
    if traced or not torch.is_grad_enabled() or transformed:
        return exchanged(tensor, group, same, sum_of_all)
    last = vars(group).get(_ENTERED)
    if last is not None and last[0]() is tensor and last[1] == tensor._version:
        return last[2]  # type: ignore[no-any-return]
    entering = getattr(tensor, "entering", None)  # set by ``sequence.whole_sequence``
    entered: torch.Tensor = exchanged(tensor, group, same, sum_of_all) if entering is None else entering()
    if (
        last is None and current_graph_task_id() != -1
    ):  # computed again in a backward, which no end of a forward follows
        execution_engine.queue_callback(partial(forget_entered, group))
    vars(group)[_ENTERED] = ref(tensor), tensor._version, entered
    return entered


def forget_entered(group: Group) -> None:
    """Drop the tensor that entered last, and its graph, at the end of a forward, or of a backward that recomputes."""
    vars(group).pop(_ENTERED, None)


def summed(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Take partial sums out of a sharded region: an all-reduce forward, the identity backward."""
    return exchanged(tensor, group, sum_of_all, same)


def gathered(tensor: torch.Tensor, group: Group, dim: int, borders: Sequence[int]) -> torch.Tensor:
    """The all-gather of shares along ``dim``; backward, this rank's share of the gradient.

    Args:
        borders: the result of ``borders_of``.
    """
    return exchanged(tensor, group, joined_shares, own_share, dim % tensor.dim(), borders)


class GroupRegion:
    """The ``Region`` of the styles, over a group."""

    def __init__(self, group: Group) -> None:
        self.group, self.rank, self.size = group, group.rank, group.size

    def enter(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return enter(value, self.group) if value.is_floating_point() else value
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            return type(value)(self.enter(item) for item in value)
        return value

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        return exchanged(value, self.group, sum_of_all, same)

    def sum_of_product(
        self, function: Callable[..., torch.Tensor], input: torch.Tensor, weight: Any, bias: Any
    ) -> torch.Tensor:
        """The bias is added after the sum, so that its gradient is whole on each rank."""
        whole = self.sum(function(input, weight, None))
        return whole if bias is None else whole + bias

    def gather(self, value: torch.Tensor, dim: int, borders: Sequence[int]) -> torch.Tensor:
        return gathered(value, self.group, dim, borders)


# The dimension of the sequence: activations are [batch, sequence, features].
SEQUENCE = 1


def part_of_sequence(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """This rank's part of a whole tensor, whose length divides by the number of ranks."""
    return exchanged(tensor, group, _own, _joined)


def whole_sequence(part: torch.Tensor, group: Group) -> torch.Tensor:
    """The whole tensor from the parts of all ranks.

    If it enters a sharded region, the gradients of all ranks go through one reduce-scatter.
    """
    whole: Any = exchanged(part, group, _joined, _own)
    data = whole.detach()
    whole.entering = lambda: exchanged(part, group, _joined, _sum, known=data)
    return whole  # type: ignore[no-any-return]


class ScatteringRegion(GroupRegion):
    """A region whose partial sums go through a reduce-scatter along the sequence."""

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        return exchanged(value, self.group, _sum, _joined)

    def sum_of_product(
        self, function: Callable[..., torch.Tensor], input: torch.Tensor, weight: Any, bias: Any
    ) -> torch.Tensor:
        """Each rank adds the bias to its part of the sequence, so the gradients of the bias are summed."""
        return super().sum_of_product(function, input, weight, self.enter(bias))


def region_of_products(group: Group, scatters: bool) -> GroupRegion:
    """The region of a layer's product; ``scatters`` if a reduce-scatter along the sequence sums it where there are gradients."""
    return ScatteringRegion(group) if scatters and torch.is_grad_enabled() else GroupRegion(group)


def _own(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    length = tensor.shape[SEQUENCE] // group.size
    return tensor.narrow(SEQUENCE, group.rank * length, length).contiguous()


def _joined(part: torch.Tensor, group: Group) -> torch.Tensor:
    return torch.cat(group.all_gather(part), SEQUENCE)


def _sum(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    return group.sum_of_parts([part.contiguous() for part in tensor.detach().chunk(group.size, SEQUENCE)])
