"""Gather whole weights from the processes that hold their parts, and distribute them, one weight at a time."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from modular_converter.parallel.engine.base.call_state import apply_changes, pickled, settings_changes, settings_of
from modular_converter.parallel.engine.group.same_calls import everywhere, from_first_process
from modular_converter.parallel.engine.group.spread import Spread, spread_of
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.torch_private import storage_number


def whole_state(model: Any, kept: bool) -> dict[str, torch.Tensor]:
    """The whole weights and buffers on the CPU, none of which later steps write to; all processes must call it.

    Args:
        kept: whether this process keeps them; otherwise it holds at most one whole weight at a time.
    """
    spreads = {one.name: one for one in spread_of(model)}
    found: dict[str, torch.Tensor] = {}
    made: dict[int, torch.Tensor] = {}
    for name, value in model.state_dict(keep_vars=True).items():
        one = spreads.get(name)
        if one is None:
            found[name] = value.detach().to("cpu", copy=True)
        else:
            if id(one.stored) not in made:
                whole = one.whole(one.stored)
                is_own = storage_number(whole) == storage_number(
                    one.local(one.stored)
                )  # of a weight that is whole here
                made[id(one.stored)] = whole.to("cpu", copy=is_own) if kept else whole.new_empty(0)
            found[name] = made[id(one.stored)]
    return found if kept else {}


class LoadedState(NamedTuple):
    """What ``load_state_dict`` of a module returns: the names that the state lacks, and those that the model lacks."""

    missing_keys: list[str]
    unexpected_keys: list[str]


def load_whole_state(
    model: Any, state: Mapping[str, torch.Tensor] | None, group: Any, strict: bool = True
) -> LoadedState:
    """Take this process's parts from whole weights; all processes must call it.

    Args:
        state: if it is None on a process, the first process sends its weights to all, one by one.
        group: all processes.
        strict: whether the state must have each name of the model, and no other.

    Raises ``ApplyError`` with the names that are missing or unknown, or of other shapes.
    """
    targets = model.state_dict(keep_vars=True)
    spreads = {one.name: one for one in spread_of(model)}
    wrong = "" if state is None else _misfit(targets, spreads, state, strict)
    shared, given = _refuse_everywhere(wrong, state, group)
    missing = {*targets} - {*given}
    with torch.no_grad():
        for name, target in targets.items():
            if name in missing:
                continue
            one = spreads.get(name) or Spread(name, target, None)
            whole = state[name] if state is not None else None
            if shared:
                whole = _first_ones(whole, one, group)
            assert whole is not None
            one.copy_entries(one.local(target), whole)
    return LoadedState([name for name in targets if name in missing], [name for name in given if name not in targets])


def _misfit(
    targets: Mapping[str, torch.Tensor], spreads: Mapping[str, Spread], state: Mapping[str, torch.Tensor], strict: bool
) -> str:
    """Why a state does not fit the whole model; empty if it fits."""
    wrong = sorted(set(targets) ^ set(state)) if strict else []
    if wrong:
        return f"{', '.join(wrong[:8])}: either the model or the state lacks it; strict=False passes over it"
    shapes = {name: spreads[name].shape if name in spreads else tuple(one.shape) for name, one in targets.items()}
    name = next((n for n, shape in shapes.items() if n in state and tuple(state[n].shape) != shape), None)
    return (
        ""
        if name is None
        else f"{name} is {list(shapes[name])} in the model, and {list(state[name].shape)} in the state"
    )


def _refuse_everywhere(wrong: str, state: Mapping[str, Any] | None, group: Any) -> tuple[bool, list[str]]:
    """Whether any process waits for the first process's weights, and the names of the weights.

    Raises ``ApplyError`` on all processes if a state does not fit, or the first process has none.
    """
    found = everywhere((wrong, None if state is None else [*state]), group)
    said = next((text for text, _ in found if text), "")
    if said:
        raise ApplyError(f"the state does not fit the model: {said}")
    names = found[0][1]
    if names is None:
        raise ApplyError("the first process has no state: give it there")
    other = next((rank for rank, (_, own) in enumerate(found) if own is not None and {*own} != {*names}), None)
    if other is not None:
        raise ApplyError(f"process {other} has a state with other names than process 0: give the same everywhere")
    return any(own is None for _, own in found), names


def _first_ones(whole: torch.Tensor | None, one: Spread, group: Any) -> torch.Tensor:
    """The first process's whole weight, on the device of this process's part."""
    local = one.local(one.stored)
    sent = torch.empty(one.shape, dtype=local.dtype, device=local.device)
    if group.rank == 0 and whole is not None:
        sent.copy_(whole)
    dist.broadcast(sent, group=group.group, group_src=0)
    return sent


def whole_tensors(
    state: Mapping[str, torch.Tensor], spreads: Mapping[str, Spread]
) -> tuple[dict[str, torch.Tensor], Callable[[str], torch.Tensor]]:
    """Name -> whole tensor of a state, without data; and a function that gathers one of these tensors on the CPU."""
    shapes = {name: spreads[name].shape if name in spreads else tuple(one.shape) for name, one in state.items()}
    whole = {name: torch.empty(shapes[name], dtype=one.dtype, device="meta") for name, one in state.items()}

    def fetch(name: str) -> torch.Tensor:
        one = spreads.get(name)
        return (state[name].detach() if one is None else one.whole(one.stored)).cpu()

    return whole, fetch


def other_arguments(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of ``save_pretrained`` but those that say whose weights are saved, and by whom, as ``Trainer`` does."""
    if given.get("state_dict") is not None:
        raise ApplyError("save_pretrained takes the weights from all processes itself: leave state_dict= out")
    return {name: value for name, value in given.items() if name not in ("state_dict", "is_main_process")}


def saved_by_first(model: Any, save: Callable[[], None]) -> None:
    """Save a model, of which the first process writes the files; all processes must call it.

    The others take over what the library has set in the first process's configuration: settings must stay the same on all.

    Raises as ``made_by_first`` does.
    """
    before = b""
    with contextlib.suppress(ApplyError):  # settings that cannot travel stay the caller's own
        before = pickled(settings_of(model))

    def saved() -> Any:
        save()
        return list(settings_changes(pickle.loads(before), settings_of(model))) if before else []

    changes = made_by_first(saved)
    if dist.get_rank():
        apply_changes(model, [], changes)


def made_by_first(make: Callable[[], Any]) -> Any:
    """What ``make`` returns on the first process, which alone may fail in it; all processes must call this.

    Raises the error of ``make``, and ``ApplyError`` with the first process's error on those that have none.
    """
    return from_first_process(make, ProcessGroup(), on_all="save the model")
