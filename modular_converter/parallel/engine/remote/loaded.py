"""A model on a rank, its state between calls, and the form of its answers."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from modular_converter.parallel.choice.skeleton import (
    META,
    Skeleton,
    assemble_model,
    run_without_data,
    tried_without_data,
)
from modular_converter.parallel.engine.base.watched_state import GONE, StateChange, WatchedState
from modular_converter.parallel.engine.remote.caller_state import apply_difference
from modular_converter.parallel.engine.remote.remote_values import OnlyThere, StoredTensor, with_marks
from modular_converter.parallel.engine.remote.same_answers import WholeFacts, answer_facts
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Piece, Resolution
from modular_converter.parallel.shard.apply import apply
from modular_converter.parallel.shard.collectives import FakeGroup, Group
from modular_converter.parallel.trace.record import leaves_in


@dataclass
class Loaded:
    """A model on this rank.

    Attributes:
        held: number -> object that stays here between calls, such as a cache.
        local: identities of the modules that compute a share of their heads.
        copies: (object in the settings, copy with a share's own numbers that a module has instead).
        seen: kind of call whose results were compared with the whole model's shapes -> names of fields that stay here.
        state: of the modules, when the last call ended.
        changed: changes that the caller has made since the hand-over.
        attentions: gives the weights of all heads to calls that ask for them.
        dropout: that drops in shares what the whole model would drop; None if no module trains.
        last: the call that has stored something last.
        stored: path of a module and name of an attribute -> number of the call that has stored it.
        compared: kind of call and attribute -> whether plain values that it stores depend on shares.
        trial: whether answers that differ between the ranks are an ordinary error, after which the ranks go on.
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
    seen: dict[Any, frozenset[str]] = field(default_factory=dict)
    trial: bool = False
    plan: Plan | None = None
    state: WatchedState | None = None
    changed: dict[tuple[str, str, bool], StateChange] = field(default_factory=dict)
    attentions: Any = None
    dropout: Any = None
    last: Called | None = None
    stored: dict[tuple[str, str], int] = field(default_factory=dict)
    compared: dict[Any, bool] = field(default_factory=dict)

    def kind_of(self, called: Called, tensors: Iterable[Any]) -> Any:
        """What is called, and the names of given arguments and returned tensors, on which the form of a result depends."""
        given = tuple(sorted((name, value is True) for name, value in called.kwargs.items() if value is not None))
        return called.path, called.method, tuple(map(type, called.args)), given, tuple(tensors)

    def facts(self, called: Called, group: Group | None) -> WholeFacts:
        """The form of the whole model's result, from a run without data; empty if that run fails.

        Args:
            group: for values that are no tensors, which are compared with those of this rank's share in such a run.
        """
        if not called.runs_module:
            return WholeFacts()
        try:
            whole = self._without_data(called, None)[0]
        except Exception:  # the model's own code needs data
            return WholeFacts()
        share = None
        if group is not None:
            with contextlib.suppress(Exception):
                share = self._without_data(called, group)[0]
        return WholeFacts(answer_facts(whole), None if share is None else answer_facts(share))

    def _without_data(self, called: Called, group: Group | None) -> tuple[Any, torch.nn.Module]:
        """The result of a call of the whole model, or of a rank's share, on the meta device; and the model afterwards."""
        model, _ = assemble_model(self.skeleton, META)
        for one in self.changed.values():
            value = one.value.to(META) if isinstance(one.value, torch.Tensor) else copy.deepcopy(one.value)
            apply_difference(model, replace(one, value=value))
        if group is not None and self.plan is not None:
            apply(model, self.plan, FakeGroup(group.size, group.rank))
        target = called.target(model.eval())
        return tried_without_data(lambda: run_without_data(target, called.args, called.kwargs)), model

    def stored_since(self, called: Called, call: int) -> list[StateChange]:
        """What a call has stored on modules, in the same order on all ranks."""
        assert self.state is not None
        found = self.state.differences()
        for one in found:
            if one.is_buffer and isinstance(one.value, torch.Tensor) and one.value.is_inference():
                # Has no version, by which the next change of it would be seen.
                self.state.accept(one.path, one.name, one.value.clone(), True)
            self.stored[one.path, one.name] = call
        if found:
            self.last = called
        return sorted(found, key=lambda one: (one.path, one.name, one.is_buffer))

    def without_shares(self, one: StateChange, call: int, called: Called, apart: bool, group: Group) -> StateChange:
        """What the caller may see of something stored: whole buffers, plain values that depend on no share, marks."""
        if one.is_buffer and isinstance(one.value, torch.Tensor) and not apart:
            return replace(one, old=None)
        value = one.value
        if value is not GONE:
            value = with_marks(value, StoredTensor(one.path, one.name, (), call))
            decided = any(isinstance(one, (int, float, str, complex)) for one in leaves_in(value))  # maybe by a share
            if decided and self._depends_on_share(one, called, group):
                value = OnlyThere(one.where, "number of each rank's own")
        return replace(one, old=None, value=value)

    def _depends_on_share(self, one: StateChange, called: Called, group: Group) -> bool:
        """Whether plain values that a call has stored are others on a share than in the whole model, without data."""
        place = (one.path, one.name, self.kind_of(called, ()))
        if place not in self.compared:
            if not called.runs_module:
                return False
            try:
                runs = [self._without_data(called, own)[1] for own in (None, group)]
                values = [vars(model.get_submodule(one.path)).get(one.name) for model in runs]
                self.compared[place] = answer_facts(values[0]) != answer_facts(values[1])
            except Exception:  # the model's own code needs data
                self.compared[place] = False
        return self.compared[place]

    def stored_value(self, stored: StoredTensor) -> tuple[torch.Tensor, WholeFacts]:
        """A tensor that the last call has stored, and its form in the whole model."""
        if self.stored.get((stored.path, stored.name)) != stored.call:
            raise ApplyError(
                f"{stored.where} was stored by an earlier call, and a later one has stored another in its place: read or "
                "copy it before the next call"
            )
        value = _at(self.model, stored)
        whole = None
        if self.last is not None and self.last.runs_module:
            with contextlib.suppress(Exception):  # the model's own code needs data, or whole caches
                whole = self._without_data(self.last, None)[1]
        if whole is None:
            if id(self.model.get_submodule(stored.path)) in self.local:
                raise ApplyError(f"{stored.where} may be each rank's own share: let forward return it")
            return value, WholeFacts()
        return value, WholeFacts({(): tuple(_at(whole, stored).shape)})


def _at(model: torch.nn.Module, stored: StoredTensor) -> Any:
    scope = vars(model.get_submodule(stored.path))
    value = scope[stored.name] if stored.name in scope else scope["_buffers"][stored.name]
    for key in stored.keys:
        value = value[key]
    return value


@dataclass(frozen=True)
class Called:
    """A call of a model, or of the module at ``path`` inside it."""

    path: str
    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def target(self, model: torch.nn.Module) -> torch.nn.Module:
        return model.get_submodule(self.path)

    def on(self, model: torch.nn.Module) -> Any:
        return getattr(self.target(model), self.method)(*self.args, **self.kwargs)

    @property
    def runs_module(self) -> bool:
        return self.method in ("forward", "__call__")

    @property
    def is_forward(self) -> bool:
        """Whether the model's own forward is called, not through ``__call__``."""
        return not self.path and self.method == "forward"


def fill_whole(model: torch.nn.Module, loaded: Loaded, numbers: dict[int, int]) -> None:
    """Give whole parameters their data; tied parameters stay tied."""
    made: dict[int, torch.nn.Parameter] = {}
    for module in model.modules():
        for leaf, old in module._parameters.items():
            if old is not None and old.is_meta:
                index = numbers[id(old)]
                made.setdefault(index, torch.nn.Parameter(loaded.shares[index], requires_grad=False))
                module._parameters[leaf] = made[index]
