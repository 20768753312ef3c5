"""The models of one rank: built from a skeleton and shares, run, given back share by share, dropped."""

from __future__ import annotations

import contextlib
import copy
import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import torch

from modular_converter.parallel.engine.base.attention_heads import (
    heads_recorded,
    local_modules,
    wants_attentions,
    whole_heads,
)
from modular_converter.parallel.engine.base.memory import usage
from modular_converter.parallel.engine.base.skeleton import Skeleton, assemble
from modular_converter.parallel.engine.inference.agreement import make_agree
from modular_converter.parallel.engine.inference.fused_norms import fuse_norms
from modular_converter.parallel.engine.inference.plain_forwards import DirectGroup, make_plain
from modular_converter.parallel.engine.ranks.gpu_mailbox import Mailbox
from modular_converter.parallel.engine.ranks.packing import COPY, pack, read_tensor, unpack
from modular_converter.parallel.engine.ranks.profiling import profile
from modular_converter.parallel.engine.ranks.protocol import ANSWER, EARLY, EVENT, FAILURE, SECONDS, UNSENT
from modular_converter.parallel.engine.ranks.random_states import adopt, changed_since
from modular_converter.parallel.engine.ranks.shared_memory import Arena
from modular_converter.parallel.engine.remote.config_changes import Change, apply_changes
from modular_converter.parallel.engine.remote.handover import Span, copy_rows, moves_of
from modular_converter.parallel.engine.remote.what_may_leave import as_on_rank, check_plain, hold
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Piece, Resolution, resolve
from modular_converter.parallel.shard.apply import apply
from modular_converter.parallel.shard.shares import share_shape


@dataclass
class Loaded:
    """A model on this rank.

    Attributes:
        held: what stays here between calls, such as caches, by number.
        local: identities of the modules that compute a share of their heads.
        copies: settings objects, and the copies with a share's own numbers that modules have instead.
    """

    model: torch.nn.Module
    skeleton: Skeleton
    shares: dict[int, torch.Tensor]
    pieces: dict[int, Piece]
    resolution: Resolution | None = None
    held: dict[int, Any] = field(default_factory=dict)
    compiled: bool = False
    local: set[int] = field(default_factory=set)
    copies: list[tuple[Any, Any]] = field(default_factory=list)


class Worker:
    """The state of one rank between messages."""

    def __init__(
        self, pipe: Connection, device: torch.device, down: Arena, up: Arena, clock: Callable[[], float]
    ) -> None:
        self.pipe, self.device, self.down, self.up, self.clock = pipe, device, down, up, clock
        self.group = DirectGroup()
        self.mailbox = Mailbox()
        self.models: dict[int, Loaded] = {}
        self.arrived = 0.0

    def answer(self, value: Any, held: dict[int, int] | None = None, share: bool = False) -> bool:
        """Send one answer with the seconds that it took; False if it could not be sent, and its error was."""
        sent = True
        try:
            data = self._packed_while_working(value, held) if share else self._packed(value, held)
        except Exception as error:
            sent, data = False, UNSENT + pickle.dumps((traceback.format_exc(), _plain(error)))
        self.pipe.send_bytes(data)
        return sent

    def _packed(self, value: Any, held: dict[int, int] | None) -> bytes:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        took = self.clock() - self.arrived
        return ANSWER + SECONDS.pack(took) + pack(value, self.up, held)

    def _packed_while_working(self, value: Any, held: dict[int, int] | None) -> bytes:
        """For a receiver on the GPU: its copies are queued behind the work; while that goes on, it reads of them."""
        work = torch.cuda.Event()  # type: ignore[no-untyped-call]
        work.record()
        took = self.clock() - self.arrived
        data = pack(value, self.up, held, self.mailbox)
        if not work.query():  # type: ignore[no-untyped-call]
            self.pipe.send_bytes(EARLY + data)
            data = b""
            work.synchronize()
            took = self.clock() - self.arrived
        torch.cuda.synchronize(self.device)  # the main process reads the mailbox on a stream of its own
        return ANSWER + SECONDS.pack(took) + data

    def handle(self, data: bytes) -> None:
        """Run one message and answer it."""
        self.arrived = self.clock()
        try:
            kind, *rest = unpack(data, self.down, self.device, self._resolve)
            getattr(self, f"on_{kind}")(*rest)
        except Exception as error:  # an answer is owed whatever happens
            self.pipe.send_bytes(FAILURE + pickle.dumps((traceback.format_exc(), _plain(error))))

    def _resolve(self, pid: Any) -> Any:
        number = pid[1]
        for loaded in self.models.values():
            if number in loaded.held:
                return loaded.held[number]
        raise ApplyError("a cache among the arguments is no longer on these ranks: its model has been taken back")

    def on_load(self, number: int, skeleton: Skeleton, plan: str) -> None:
        """Build a model without weights and make room for this rank's shares."""
        model, made = assemble(skeleton, self.device)
        resolution = resolve(Plan.parse(plan), model)
        pieces = {n: resolution.pieces[i.name] for n, i in enumerate(skeleton.items) if i.name in resolution.pieces}
        shares = {}
        for index, item in enumerate(skeleton.items):
            piece = pieces.get(index)
            shape = share_shape(item.shape, piece.dim if piece else -1, self.group.size)
            shares[index] = torch.empty(shape, dtype=item.kept, device=self.device) if item.parameter else made[index]
        self.models[number] = Loaded(model, skeleton, shares, pieces, resolution)
        self.answer(None)

    def on_parcel(self, number: int, base: int, spans: list[Span]) -> None:
        """Copy this rank's part out of rows that lie in the shared area."""
        loaded = self.models[number]
        for span in spans:
            item = loaded.skeleton.items[span.number]
            shape = (span.last - span.first, *item.shape[1:])
            chunk = read_tensor(self.down, base + span.offset, item.dtype, shape)
            piece = loaded.pieces.get(span.number)
            target = loaded.shares[span.number]
            target = target if item.shape else target.view(1)
            moves = moves_of(piece, item.shape, self.group.rank, self.group.size)
            copy_rows(chunk, span.first, target, piece.dim if piece else 0, moves)
        self.answer(None)

    def on_finish(self, number: int, plan: str, compile: bool) -> None:
        """Put the shares in their places: the model is ready to run."""
        loaded = self.models[number]
        model = loaded.model
        numbers = {item.name: index for index, item in enumerate(loaded.skeleton.items) if item.parameter}
        by_identity = {id(p): numbers[name] for name, p in model.named_parameters()}

        def share(parameter: torch.nn.Parameter, piece: Piece, group: Any) -> torch.Tensor:
            return loaded.shares[by_identity[id(parameter)]]

        keep = list(model.parameters())  # so that no identity is used twice
        applied = apply(model, Plan.parse(plan), self.group, share)
        _fill_whole(model, loaded, by_identity)
        loaded.local = local_modules(model, applied.resolution.pieces)
        loaded.copies = [(was, getattr(of, name)) for of, name, was in applied.integers if hasattr(was, "__dict__")]
        make_plain(applied, self.group)
        fuse_norms(model)
        del keep
        model.eval()
        loaded.compiled = compile
        if compile:
            _choose_cache(model, {})
        make_agree(model, self.group)
        self.answer(None)

    def on_call(
        self, number: int, method: str, args: Any, kwargs: Any, states: Any, share: bool, dropped: list[int], name: int
    ) -> None:
        """Run a method of a model under the caller's random state; the first rank answers with the result.

        The model's own hooks run in the main process, around ``forward``; inside other methods they run here.
        """
        loaded = self.models[number]
        for gone in dropped:
            loaded.held.pop(gone, None)
        adopt(states, self.device)
        args, kwargs = as_on_rank(args, kwargs, self._event, lambda other: self.models[other].model)
        if loaded.compiled:
            _choose_cache(loaded.model, kwargs)
        recorded: Any = contextlib.nullcontext({})
        if wants_attentions(loaded.model, args, kwargs):
            recorded = heads_recorded(loaded.local)
        with torch.inference_mode(), recorded as owners:  # a token is a thousand small operations: no gradients
            result = getattr(loaded.model, method)(*args, **kwargs)
            result = whole_heads(result, loaded.model, self.group.size, owners, self._all_heads)
        answer = None if self.group.rank else (result, changed_since(states, self.device))
        self._answer_and_hold(loaded, result, answer, name, share and not self.group.rank)

    def on_profile(self, number: int, method: str, args: Any, kwargs: Any) -> None:
        """Run a method under torch's profiler; each rank's table of what its time went to."""
        model: Any = self.models[number].model
        target = model if method == "forward" else getattr(model, method)
        self.answer(profile(lambda: target(*args, **kwargs), self.device))

    def _answer_and_hold(self, loaded: Loaded, result: Any, answer: Any, name: int, share: bool = False) -> None:
        """Send an answer with the caches of a result as handles; they stay here, unless nobody hears of them."""
        held = hold(result, name, loaded.held)
        new = held.keys() - loaded.held.keys()
        loaded.held.update(held)
        if not self.answer(answer, {id(v): k for k, v in held.items()}, share):
            for unnamed in new:
                del loaded.held[unnamed]

    def _all_heads(self, value: torch.Tensor) -> torch.Tensor:
        return self.group.gather_last(value.movedim(1, -1).contiguous()).movedim(-1, 1)

    def _event(self, kind: str, value: Any) -> None:
        if self.group.rank == 0:
            value = value.cpu() if isinstance(value, torch.Tensor) else value
            self.pipe.send_bytes(EVENT + pickle.dumps((kind, value)))

    def on_hold(self, number: int, held: int, value: Any) -> None:
        """Keep an object of the caller's for good."""
        self.models[number].held[held] = value
        self.answer(None)

    def on_method(self, number: int, held: int, method: str, args: Any, kwargs: Any, name: int) -> None:
        """Run a method of an object that stays here; read an attribute if ``args`` is None."""
        if number not in self.models:
            raise ApplyError("the model of this cache has been taken back, and its cache with it")
        loaded = self.models[number]
        value = loaded.held[held]
        with torch.inference_mode():  # static caches are written in place, and were made in this mode
            if method == COPY:
                result = copy.deepcopy(value)
            else:
                result = getattr(value, method) if args is None else getattr(value, method)(*args, **kwargs)
        check_plain(result, f"{type(value).__name__}.{method}")
        self._answer_and_hold(loaded, result, None if self.group.rank else result, name)

    def on_settings(self, number: int, changes: list[Change]) -> None:
        """Make changes of settings here too."""
        loaded = self.models[number]
        apply_changes(loaded.model, loaded.copies, changes)
        self.answer(None)

    def on_rows(self, number: int, index: int, first: int, last: int) -> None:
        """Rows of this rank's share of a tensor; of a whole one the first rank's alone."""
        loaded = self.models[number]
        share = loaded.shares[index]
        wanted = self.group.rank == 0 or index in loaded.pieces and loaded.pieces[index].dim >= 0
        self.answer((share.view(1) if share.dim() == 0 else share)[first:last] if wanted else None)

    def on_memory(self) -> None:
        """The memory of this rank's device."""
        self.answer(usage(self.device))

    def on_drop(self, number: int) -> None:
        """Forget a model."""
        self.models.pop(number, None)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        self.answer(None)


def _fill_whole(model: torch.nn.Module, loaded: Loaded, numbers: dict[int, int]) -> None:
    """Parameters that the plan leaves whole get their data; tied ones stay one."""
    made: dict[int, torch.nn.Parameter] = {}
    for module in model.modules():
        for leaf, old in module._parameters.items():
            if old is not None and old.is_meta:
                index = numbers[id(old)]
                made.setdefault(index, torch.nn.Parameter(loaded.shares[index], requires_grad=False))
                module._parameters[leaf] = made[index]


def _choose_cache(model: Any, kwargs: dict[str, Any]) -> None:
    """A static cache is what makes ``generate`` compile its decoding step, with CUDA graphs on GPUs.

    It refuses the setting beside a cache that is given.
    """
    settings = getattr(model, "generation_config", None)
    if settings is not None and settings.cache_implementation in (None, "static"):
        settings.cache_implementation = "static" if kwargs.get("past_key_values") is None else None


def _plain(error: BaseException) -> Any:
    """The exception, if it can travel."""
    try:
        return pickle.loads(pickle.dumps(error))
    except Exception:
        return None
