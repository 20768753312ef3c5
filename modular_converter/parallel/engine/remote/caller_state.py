"""The caller's state beside the weights: compared before each call, and sent to the ranks or refused.

Ranks have the modules, the code and torch's settings of the moment at which they got the model. Whatever this process
changes later is found here: attributes, ``training``, buffers, settings of torch, patched code. A change of a number is
sent. Any other change is sent if the model runs the same operations with it, since the plan is proven for these alone.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch

from modular_converter.parallel.choice.skeleton import Skeleton
from modular_converter.parallel.choice.trials import inputs_without_data, kinds_of_call
from modular_converter.parallel.engine.base.call_state import refuse_modes, settings_of
from modular_converter.parallel.engine.base.watched_code import WatchedCode
from modular_converter.parallel.engine.base.watched_state import GONE, StateChange, WatchedState
from modular_converter.parallel.engine.base.weights_there import is_there
from modular_converter.parallel.engine.remote.placement import Placement
from modular_converter.parallel.errors import ApplyError, one_line
from modular_converter.parallel.modules import is_plain, is_same_value
from modular_converter.parallel.shard.apply import cut_sizes


_OPERATIONS = ("operation", "cut")
_CURE = "take the model back with .cpu(), change it, and parallelize it again"


class CallerState:
    """What the ranks have, and how this process has changed since.

    Args:
        skip: names of the model's attributes that are the ranks' own affair.
    """

    def __init__(self, model: torch.nn.Module, placement: Placement, skip: Iterable[str]) -> None:
        settings = vars(settings_of(model))
        self.placement, self.device = placement, torch.device(placement.session.devices[0])
        self.sizes = cut_sizes(model, {placement.skeleton.items[n].name: one for n, one in placement.pieces.items()})
        self.modules = WatchedState(model, (*skip, *settings), configs_in(settings.values()))
        self.code = WatchedCode(model)
        registers: list[dict[int, Any]] = [vars(model)["_forward_hooks"], vars(model)["_forward_pre_hooks"]]
        self.hooks = [(hooks, dict(hooks)) for hooks in registers]
        self.weights = list(model.parameters())
        self.kinds = list(map(type, self.weights))
        self.refused: dict[tuple[str, str, bool], StateChange] = {}
        self.sent: dict[tuple[str, str, bool], StateChange] = {}
        self.lock = (
            threading.RLock()
        )  # calls of several threads: a change found by one must be there before the other's

    def send(self, skeleton: Skeleton) -> None:
        """Bring the ranks up to date before a call.

        Raises ``ApplyError`` with the name of a change that does not reach them, as long as it is not undone.
        """
        refuse_modes(self.device)
        # The thread that is in a call would wait here for another one, which waits for the end of that call.
        self.placement.session.lock.refuse_owner()
        with self.lock:
            self._send(skeleton)

    def _send(self, skeleton: Skeleton) -> None:
        if list(map(type, self.weights)) != self.kinds:
            raise ApplyError(
                f"a weight was swapped with a tensor of this process, which the ranks do not see; {_CURE}"
            )
        if reason := self.code.changed():
            raise ApplyError(
                f"{reason} is not what it was when the ranks got the model, and they do not see it; {_CURE}"
            )
        placement = self.placement
        if self.code.unsent:
            placement.send("code", self.code.facts())
            self.code.unsent = False
        placement.match_switches()
        found = self.modules.differences()
        if not found and not self.refused:
            return
        for one in found:
            place = (one.path, one.name, one.is_buffer)
            first = self.refused.pop(place, one)
            if first is one or not self._is_undone(first, one.value):
                self.refused[place] = replace(one, old=first.old)
        changes = list(self.refused.values())
        if changes:
            self._check(changes, skeleton)
            # Without old values, which need not travel: the same object stands for a change in place.
            sent = [(one, True) if one.old is one.value else (replace(one, old=None), False) for one in changes]
            placement.send("state", placement.number, sent)
            for one in changes:
                self.sent[one.path, one.name, one.is_buffer] = replace(one, old=None, value=copy.deepcopy(one.value))
            self.refused.clear()

    def _check(self, changes: list[StateChange], skeleton: Skeleton) -> None:
        """Raise ``ApplyError`` for the first change that may not be sent."""
        for one in changes:
            if reason := self._hindrance(one):
                raise ApplyError(f"{one.where} was set, but {reason}; {_CURE}")
        unsure = [one for one in changes if not _is_number_alone(one)]
        if unsure and (reason := _other_operations(skeleton, list(self.sent.values()), changes)):
            names = ", ".join(one.where for one in unsure)
            raise ApplyError(f"{names} was set, and {reason}, for which the plan is not proven; {_CURE}")

    def _is_undone(self, first: StateChange, value: Any) -> bool:
        """Whether a value is the one that the ranks have. An object that was put back may have been written: it is sent again."""
        if is_plain(value) and is_plain(first.old):
            return first.old is not first.value and is_same_value(first.old, value)
        put_back = value is first.old and value is not first.value
        return put_back and bool(self._hindrance(replace(first, value=value)))

    def _hindrance(self, one: StateChange) -> str:
        value = one.value
        if (one.path, one.name) in self.sizes or (one.path, one.name) in self.placement.cut:
            return "ranks share out the sizes of this module, and where their shares differ they would compute others with it"
        if isinstance(value, (torch.nn.Module, torch.nn.Parameter)) or is_there(value):
            return "modules and weights are on the ranks"
        if value is not GONE and callable(value) or one.old is not GONE and callable(one.old):
            return "a method or function of one module does not reach the ranks"
        try:
            copy.deepcopy(value)
        except Exception as error:  # what the object's own code raises
            return f"it cannot be sent to the ranks ({one_line(error)})"
        return ""


def apply_difference(model: torch.nn.Module, one: StateChange, in_place: bool = False) -> None:
    """Make a change in another model of the same modules.

    Args:
        in_place: whether a tensor was written, and not replaced: other modules may share it.
    """
    scope = vars(model.get_submodule(one.path))
    scope = scope["_buffers"] if one.is_buffer else scope
    old = scope.get(one.name)
    if one.value is GONE:
        scope.pop(one.name, None)
    elif in_place and isinstance(one.value, torch.Tensor) and isinstance(old, torch.Tensor):
        old.copy_(one.value)
    else:
        scope[one.name] = one.value


def _is_number_alone(one: StateChange) -> bool:
    """Whether a change can alter numbers, but no shape and no branch that depends on a switch."""
    if one.name == "training" and isinstance(one.value, bool):
        return True
    if isinstance(one.value, torch.Tensor) and isinstance(one.old, torch.Tensor):
        return one.value.shape == one.old.shape and one.value.dtype == one.old.dtype
    return isinstance(one.old, float) and type(one.value) in (int, float)


def _other_operations(skeleton: Skeleton, sent: list[StateChange], changes: list[StateChange]) -> str:
    """What differs between runs without data before and after the changes, in words; empty if nothing does."""

    def operations(differences: list[StateChange]) -> dict[str, Any]:
        def change(model: torch.nn.Module) -> None:
            for one in differences:
                value = one.value
                apply_difference(
                    model,
                    replace(one, value=value.to("meta") if isinstance(value, torch.Tensor) else copy.deepcopy(value)),
                )

        found = kinds_of_call(skeleton, inputs_without_data(skeleton, None), change)
        return {path: {fact for fact in kind if fact[0] in _OPERATIONS} for path, kind in found.items()}

    try:
        before = operations(sent)
        after = operations(sent + changes)
    except Exception as error:  # the model's own code needs data, or does not run with the change
        return f"its operations cannot be compared without data ({one_line(error)})"
    where = next((path for path in before.keys() | after.keys() if before.get(path) != after.get(path)), None)
    return "" if where is None else f"{where or 'the model'} runs other operations with it"


def configs_in(settings: Iterable[Any]) -> list[Any]:
    """Configurations, and those inside them."""
    found: list[Any] = []
    for one in settings:
        found.append(one)
        found += configs_in(value for value in vars(one).values() if "Config" in type(value).__name__)
    return found
