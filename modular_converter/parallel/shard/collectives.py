"""Collectives with gradients over a group of ranks: of processes (gloo, nccl) or of threads in one process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any, Protocol
from weakref import WeakKeyDictionary, ref

import torch
import torch.distributed as dist

from modular_converter.parallel.errors import RankError


class Group(Protocol):
    """Ranks that hold the same inputs. Every rank must make the same calls in the same order."""

    rank: int
    size: int

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """The sum over the ranks, as a new tensor of the same shape."""

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The tensors of all ranks, in order of rank."""


class Restorable(Protocol):
    """State that was taken, to be given back."""

    def give_back(self) -> object:
        """Write it back to where it was."""


class ProcessGroup:
    """Ranks of ``torch.distributed``; the default group unless one is given."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        result = tensor.detach().clone(memory_format=torch.contiguous_format)
        dist.all_reduce(result, group=self.group)
        return result

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        source = tensor.detach().contiguous()
        pieces = [torch.empty_like(source) for _ in range(self.size)]
        dist.all_gather(pieces, source, group=self.group)
        return pieces

    def sum_of_parts(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """The sum over the ranks of one of several tensors of the same shape: the first rank gets that of the first."""
        result = torch.empty_like(parts[0])
        dist.reduce_scatter(result, list(parts), group=self.group)
        return result

    def from_first(self, tensor: torch.Tensor) -> torch.Tensor:
        """The first rank's tensor, which has the same shape and type, without gradients."""
        result = tensor.detach().clone(memory_format=torch.contiguous_format)
        sent = result.view(torch.uint8) if result.dtype == torch.bool else result  # gloo has no booleans
        dist.broadcast(sent, group=self.group, group_src=0)
        return result


class ThreadBoard:
    """The exchange between thread ranks: each puts its tensor there, all wait, each takes the tensors that it needs.

    Calls have labels, so that different calls of the ranks are an error, not wrong numbers. A rank that fails breaks
    the barrier for all, so that none waits for ever. Between meetings one rank computes at a time, with a random state
    of its own: torch has one default generator a process, and models that draw from it must draw the same. So it is
    with other state that threads share and processes do not.

    Args:
        take: takes this state, for its method that gives it back.
    """

    def __init__(self, size: int, timeout_s: float = 60.0, take: Callable[[], Restorable] | None = None) -> None:
        self.size = size
        self.take = take
        self.slots: list[tuple[str, torch.Tensor] | None] = [None] * size
        self.barrier = threading.Barrier(size, timeout=timeout_s)
        self.baton = threading.Lock()

    def meet(self, rank: int, label: str, tensor: torch.Tensor) -> list[torch.Tensor]:
        """All ranks' tensors, in order. Raises ``RankError`` when the ranks do not make the same call."""
        self.slots[rank] = (f"{label} {tuple(tensor.shape)}", tensor.detach())
        random, taken = torch.get_rng_state(), self.take() if self.take else None
        self.baton.release()
        try:
            self.barrier.wait()
            found = [slot for slot in self.slots if slot is not None]
            labels = {name for name, _ in found}
            self.barrier.wait()
        except threading.BrokenBarrierError as error:
            raise RankError("another rank failed, or the ranks make different numbers of collectives") from error
        finally:
            self.baton.acquire()
            torch.set_rng_state(random)
            if taken is not None:
                taken.give_back()
        if len(labels) > 1:
            raise RankError(f"the ranks disagree: {' against '.join(sorted(labels))}")
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


def run_on_threads(
    ranks: int, work: Callable[[ThreadGroup], bool], take: Callable[[], Restorable] | None = None
) -> None:
    """Run ranks that are threads, one at a time between their meetings, until all have ended.

    Args:
        work: of a rank; whether it has failed, so that the others shall not wait for it. What it raises is raised again.
        take: takes state of the process, of which each rank is to have its own; all begin with the present one.
    """
    board = ThreadBoard(ranks, take=take)
    present = take() if take else None
    errors: list[BaseException] = []

    def run(rank: int) -> None:
        failed = True
        try:
            with board.baton:
                if present is not None:
                    present.give_back()
                failed = work(ThreadGroup(board, rank))
        except BaseException as error:  # a rank without a result must not count as successful
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


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.group.all_reduce(grads[0]), None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group) -> torch.Tensor:
        return group.all_reduce(tensor)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grads[0], None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, group: Group, dim: int, borders: Sequence[int]) -> torch.Tensor:
        ctx.dim, (ctx.first, ctx.last) = dim, borders[group.rank : group.rank + 2]
        return torch.cat(all_shares(tensor, group, dim, [last - first for first, last in pairwise(borders)]), dim)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return grads[0].narrow(ctx.dim, ctx.first, ctx.last - ctx.first), None, None, None


def all_shares(tensor: torch.Tensor, group: Group, dim: int, lengths: Sequence[int]) -> list[torch.Tensor]:
    """The shares of all ranks, in order of rank. Those that are shorter than the longest travel with padding.

    Args:
        lengths: of all ranks' shares along ``dim``.
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
    """The first entry of each rank, and the length of the whole, from the lengths of the shares."""
    return (0, *accumulate(lengths))


# Group -> what it has entered last: the tensor, its version, and the tensor that the region got.
_ENTERED: WeakKeyDictionary[Group, tuple[ref[torch.Tensor], int, torch.Tensor]] = WeakKeyDictionary()


def enter(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """A whole tensor into a sharded region: itself forward, its gradient summed over the ranks.

    The gradients of several uses one after the other, such as query, key and value, are added up first and summed once.
    """
    if not tensor.requires_grad:
        return tensor
    if torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return _Enter.apply(tensor, group)  # type: ignore[no-any-return,no-untyped-call]
    last = _ENTERED.get(group)
    if last is not None and last[0]() is tensor and last[1] == tensor._version:
        return last[2]
    entering = getattr(tensor, "entering", None)  # of parts of a sequence
    entered: torch.Tensor = _Enter.apply(tensor, group) if entering is None else entering()  # type: ignore[no-untyped-call]
    _ENTERED[group] = ref(tensor), tensor._version, entered
    return entered


def forget_entered(group: Group) -> None:
    """Drop the tensor that was entered last, and the graph behind it, at the end of a forward."""
    _ENTERED.pop(group, None)


def summed(tensor: torch.Tensor, group: Group) -> torch.Tensor:
    """Partial results out of a sharded region: their sum forward, the gradient as it is."""
    return _Sum.apply(tensor, group)  # type: ignore[no-any-return,no-untyped-call]


def gathered(tensor: torch.Tensor, group: Group, dim: int, borders: Sequence[int]) -> torch.Tensor:
    """Shards along ``dim`` put together: the whole tensor forward, this rank's share of the gradient backward.

    Args:
        borders: of ``borders_of``.
    """
    return _Gather.apply(tensor, group, dim, borders)  # type: ignore[no-any-return,no-untyped-call]


class GroupRegion:
    """A group of ranks in the form that the forward of a style uses: ``Region`` of the styles."""

    def __init__(self, group: Group) -> None:
        self.group, self.rank, self.size = group, group.rank, group.size

    def enter(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return enter(value, self.group) if value.is_floating_point() else value
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
            return type(value)(self.enter(item) for item in value)
        return value

    def sum(self, value: torch.Tensor) -> torch.Tensor:
        return summed(value, self.group)

    def gather(self, value: torch.Tensor, dim: int, borders: Sequence[int]) -> torch.Tensor:
        return gathered(value, self.group, dim, borders)
