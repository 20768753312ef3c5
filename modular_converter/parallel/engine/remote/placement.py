"""A model of the main process on a session's ranks: handed over, called, given back.

Weights go to the ranks and back a few megabytes at a time, through one shared area. A model is taken apart into its
skeleton and its tensors. A rank assembles the skeleton on the meta device, resolves the plan, and copies its own share of
each tensor.
"""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from modular_converter.parallel.choice.skeleton import Item, Skeleton
from modular_converter.parallel.engine.base.call_state import (
    caches_in,
    has_content,
    objects_in,
    random_states,
    set_random_states,
    take_changes,
)
from modular_converter.parallel.engine.base.watched_state import StateChange
from modular_converter.parallel.engine.remote.remote_values import StoredTensor, with_stream
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.ranks.packing import OnRanks, handle_for, public_names, stand_in
from modular_converter.parallel.ranks.session import RemoteError, Session
from modular_converter.parallel.shard.shares import largest_share, stretches
from modular_converter.parallel.torch_switches import TorchSwitches


# Of each of the two slots: small beside any model worth sharding, large beside the cost of a message.
SLOT_BYTES = 32 << 20


@dataclass(frozen=True)
class Span:
    """Rows ``first`` to ``last`` of a tensor, at ``offset`` in the shared area."""

    number: int
    first: int
    last: int
    offset: int


def parcels(items: tuple[Item, ...], slot: int) -> Iterator[list[Span]]:
    """All rows of all tensors, in parcels that fit a slot; a single row may be larger."""
    parcel: list[Span] = []
    used = 0
    for number, item in enumerate(items):
        row, first = max(item.row_bytes, 1), 0
        while first < item.rows:
            room = (slot - used) // row
            if room < 1 and parcel:
                yield parcel
                parcel, used = [], 0
                continue
            last = min(item.rows, first + max(room, 1))
            parcel.append(Span(number, first, last, used))
            used += -(-(last - first) * row // 64) * 64
            first = last
    if parcel:
        yield parcel


def slot_bytes(items: tuple[Item, ...]) -> int:
    """The bytes of a slot: room for each row, and a small part of all tensors together."""
    total = sum(-(-item.row_bytes * item.rows // 64) * 64 for item in items)
    return max(64, min(SLOT_BYTES, total // 40), max((item.row_bytes for item in items), default=0))


def moves_of(piece: Piece | None, shape: tuple[int, ...], rank: int, size: int) -> list[tuple[int, int, int]]:
    """The moves from a whole tensor to a rank's share, for ``copy_rows``; empty if the tensor stays whole."""
    if piece is None or piece.dim < 0:
        return []
    return stretches(shape[piece.dim], piece.parts, rank, size, piece.units)


def copy_rows(
    chunk: torch.Tensor, first: int, target: torch.Tensor, dim: int, moves: list[tuple[int, int, int]]
) -> None:
    """Copy rows of one tensor into another.

    Args:
        chunk: rows of the source, from ``first`` on.
        dim: the dimension of ``moves``.
        moves: ``(start in the source, start in the target, length)``; if empty, the rows are copied unchanged.
    """
    rows = chunk.shape[0]
    if not moves:
        target[first : first + rows].copy_(chunk)
    for source, goal, length in moves:
        if dim:
            target[first : first + rows].narrow(dim, goal, length).copy_(chunk.narrow(dim, source, length))
            continue
        low, high = max(source, first), min(source + length, first + rows)
        if low < high:
            target[goal + low - source : goal + high - source].copy_(chunk[low - first : high - first])


NUMBERS = itertools.count(1)
_CHUNK_BYTES = 32 << 20
# A fetched weight of at most this size is kept until another one is fetched.
_KEPT_BYTES = 64 << 20
# Objects that one answer can leave on the ranks.
_NAMES = 1 << 12


@dataclass
class Placement:
    """A model's weights on the ranks.

    Attributes:
        tensors: the model's own tensors, empty until ``give_back``.
        pieces: number of a sharded item -> its split.
        times: seconds of the last call on each rank, by its own clock.
        handles: number of an object on the ranks -> its handle.
        lent: name of a parameter whose weight also stays in the main process -> its number.
        read: bytes that each rank has read from files.
        settings: the settings on the ranks; see ``config_changes.settings_of``.
        unused: the finalizer that drops the model on the ranks.
        cut: path of a module, and name of an integer of which each rank has its own.
        take_stored: called with what a call has stored on the modules of the ranks.
        latest: name and whole tensor of the weight that was fetched last.
    """

    session: Session
    number: int
    plan: Plan
    skeleton: Skeleton
    tensors: list[torch.Tensor]
    pieces: dict[int, Piece]
    own_session: bool
    times: list[float] = field(default_factory=list)
    handles: weakref.WeakValueDictionary[int, Any] = field(default_factory=weakref.WeakValueDictionary)
    lent: dict[str, int] = field(default_factory=dict)
    read: list[int] = field(default_factory=list)
    settings: bytes = b""
    unused: weakref.finalize[Any, Any] | None = None
    latest: tuple[str, torch.Tensor] = ("", torch.empty(0))
    cut: frozenset[tuple[str, str]] = frozenset()
    take_stored: Callable[[list[StateChange]], None] = lambda found: None

    def call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any], path: str = "") -> Any:
        """Run a method of the model on all ranks under the caller's random state; return the first rank's result.

        A new cache among the arguments goes to the ranks for good, and the caller's object becomes its handle.

        Args:
            path: of the module inside the model whose method it is.

        Raises:
            ApplyError: a cache has content that was not made on the ranks.
            RankError: the ranks have ended, before or during the call.
        """
        places = (one.device for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor))
        where = next(places, torch.device("cpu"))  # of the results, too
        share = self.session.devices[0] != "cpu" and where.type == "cuda"
        args, kwargs, event = with_stream(args, kwargs)
        with self.session.lock:
            for cache in caches_in((args, kwargs)):
                if not isinstance(cache, OnRanks):
                    self._lend(cache)
            states = random_states()
            name = self._name()
            message = ("call", self.number, path, method, args, kwargs, states, share, name)
            try:
                answers = self._ask(message, event=event, device=where, resolve=self._handle)
            except BaseException:  # the ranks may keep objects that have no handle here
                self.session.forget(self.number, range(name, name + _NAMES))
                raise
            self.times = self.session.times
            result, drawn, stored, changes = answers[0]
            take_changes(objects_in((args, kwargs)), changes)
            if drawn is not None:
                set_random_states(*drawn)
            if stored:
                self.take_stored(stored)
            return result

    def _ask(self, message: Any, **how: Any) -> list[Any]:
        """Ask the ranks. Raises an error of all ranks unchanged."""
        try:
            return self.session.ask(message, **how)
        except RemoteError as error:
            raise (error.error or RuntimeError(str(error))) from error

    def _name(self) -> int:
        """The first of ``_NAMES`` numbers for the objects that one answer leaves on the ranks."""
        return (self.number << 40) + next(NUMBERS) * _NAMES

    def _lend(self, cache: Any) -> None:
        """Send an empty cache to the ranks for good; the caller's object becomes its handle."""
        kind = type(cache).__name__
        if has_content(cache):
            raise ApplyError(
                f"the {kind} holds keys and values (or memory for them) that were not made on the ranks; give an empty "
                "cache, and run its tokens through the parallelized model"
            )
        number = self._name()
        self._ask(("hold", self.number, number, cache))
        stand_in(cache, number, self._call_held)
        self._keep(cache, number)

    def _keep(self, handle: Any, number: int) -> None:
        self.handles[number] = handle
        gone = weakref.finalize(handle, _forget_handle, weakref.ref(self.session), self.number, number, os.getpid())
        gone.atexit = False

    def _handle(self, pid: Any) -> Any:
        _, number, kind, own = pid
        names = public_names(kind, own)
        handle = self.handles.get(number)
        if handle is None:
            handle = handle_for(kind, number, names, self._call_held)
            # The last handle may have been dropped while the ranks were sending the object again.
            self.session.remember(self.number, number)
            self._keep(handle, number)
        vars(handle)["_names"] = names
        return handle

    def _call_held(self, held: int, method: str, args: Any, kwargs: Any) -> Any:
        with self.session.lock:
            message = ("method", self.number, held, method, args, kwargs, self._name())
            return self._ask(message, resolve=self._handle)[0]

    def send(self, *message: Any) -> list[Any]:
        """The answers of all ranks to a message, such as one with what has changed in this process."""
        with self.session.lock:
            return self._ask(message)

    def match_switches(self) -> None:
        """Send torch's settings of this process if the ranks have others, such as those of a call of another model."""
        switches = TorchSwitches.here()
        if switches != self.session.switches:
            with self.session.lock:
                self._ask(("switches", switches))
                self.session.switches = switches

    def stored(self, one: StoredTensor) -> torch.Tensor:
        """The tensor that the last call has stored on a module of the ranks; raises ``ApplyError`` if it is a share."""
        found: torch.Tensor = self.send("stored", self.number, one)[0]
        return found

    def divides(self, path: str) -> bool:
        """Whether ranks have shares of weights of the module."""
        names = (self.skeleton.items[n].name for n, piece in self.pieces.items() if piece.dim >= 0)
        return any(name.startswith(f"{path}.") for name in names)

    def memory(self) -> dict[str, dict[str, Any]]:
        """The figures of ``memory.usage`` by device."""
        found = enumerate(zip(self.session.devices, self.send("memory")))
        return {name if name != "cpu" else f"cpu:{n}": value for n, (name, value) in found}

    def whole(self) -> Iterator[tuple[Item, torch.Tensor]]:
        """Each parameter's item, and its whole tensor on the CPU, one after the other."""
        for index, item in enumerate(self.skeleton.items):
            if item.parameter:
                with self.session.lock:
                    found = self._gathered(index, item)
                yield item, found

    def whole_one(self, name: str) -> torch.Tensor:
        """The whole tensor of a parameter, on the CPU, by its first name."""
        index = next(n for n, item in enumerate(self.skeleton.items) if item.parameter and item.name == name)
        with self.session.lock:
            return self._gathered(index, self.skeleton.items[index])

    def fetched(self, name: str) -> torch.Tensor:
        """As ``whole_one``; the latest weight is kept, if it is small, for loops over its rows."""
        if self.latest[0] != name:
            self.latest = ("", torch.empty(0))
            found = self.whole_one(name)
            if found.numel() * found.element_size() > _KEPT_BYTES:
                return found
            self.latest = (name, found)
        return self.latest[1]

    def _gathered(self, index: int, item: Item) -> torch.Tensor:
        piece, size = self.pieces.get(index), len(self.session.devices)
        whole = torch.empty(item.shape, dtype=item.kept)
        target = whole if item.shape else whole.view(1)
        rows = (largest_share(item.shape, piece, size) or (1,))[0]
        step = max(1, _CHUNK_BYTES // max(1, item.row_bytes))
        for first in range(0, rows, step):
            answers = self.session.ask(("rows", self.number, index, first, min(rows, first + step)))
            for rank, chunk in enumerate(answers):
                if chunk is not None:
                    there = moves_of(piece, item.shape, rank, size)
                    moves = [(local, start, length) for start, local, length in there]
                    copy_rows(chunk, first, target, piece.dim if piece else 0, moves)
        return whole

    def give_back(self) -> None:
        """Restore the data of the model's own tensors, and drop the model on the ranks."""
        whole = self.whole()
        for tensor, item in zip(self.tensors, self.skeleton.items):
            if item.parameter:
                tensor.data = next(whole)[1]
        self.end()

    def end(self) -> None:
        """Drop the model on the ranks; end ranks that were started for it alone."""
        if self.unused is not None:
            self.unused.detach()
        if self.own_session:
            self.session.end()
        elif not self.session.ended:
            self.session.forget(self.number)


def _forget_handle(session: weakref.ref[Session], model: int, number: int, process: int) -> None:
    """A handle is gone: the ranks drop its object."""
    found = session()
    if found is not None and os.getpid() == process:
        found.forget(model, range(number, number + 1))
