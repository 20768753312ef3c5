"""Compare answers of the ranks with answers of the main process, before the hand-over of a model's weights."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

import torch

from modular_converter.parallel.choice.skeleton import META, assemble_model, dismantle, kept_types
from modular_converter.parallel.choice.small_instances import proven_inputs
from modular_converter.parallel.engine.base.preflight import check_fit
from modular_converter.parallel.engine.base.probe import Probe, probe_of, probe_with
from modular_converter.parallel.engine.checkpoint.load_model import Checkpoint
from modular_converter.parallel.engine.ranks.failures import RemoteError
from modular_converter.parallel.engine.ranks.session import Session
from modular_converter.parallel.engine.remote.place import place
from modular_converter.parallel.engine.remote.placement import Placement
from modular_converter.parallel.errors import ApplyError, PlanError, one_line
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import fitting
from modular_converter.parallel.proof.judge import FOR_INFERENCE, HALF_TYPES
from modular_converter.parallel.shard.apply import apply
from modular_converter.parallel.shard.collectives import FakeGroup
from modular_converter.parallel.shard.shares import without_units


logger = logging.getLogger(__name__)
# (Class, configuration, plan, devices) of small instances that have agreed with ranks.
_AGREED: set[tuple[Any, ...]] = set()


@dataclass(frozen=True)
class ComparedOnRanks:
    """The difference between answers, in words; empty if they agree.

    Attributes:
        placement: of the compared layers on the ranks.
        ran: the layers that ran on the ranks, their form and types, in words; empty if none ran.
    """

    said: str = ""
    placement: Placement | None = None
    ran: str = ""


def difference_on_ranks(
    model: Any, plan: Plan, session: Session, dtype: torch.dtype | None, checkpoint: Checkpoint | None = None
) -> ComparedOnRanks:
    """Compare one layer of each kind on the ranks and in the main process.

    The ranks get copies of the weights of these layers, and drop them with the result.

    Args:
        checkpoint: the files of the weights, if the model has no data.

    Raises ``RankError`` if a rank died or hung.
    """
    if len(session.devices) == 1:
        return ComparedOnRanks()
    probe = probe_of(model, checkpoint.filled if checkpoint is not None else None)
    if isinstance(probe, str):
        logger.info("%s is not compared with the ranks before it is handed over: %s", type(model).__name__, probe)
        return ComparedOnRanks()
    types = {dtype or parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    found = _compared_once(probe, plan, session, kept_types(model, dtype), not types.isdisjoint(HALF_TYPES))
    names = ", ".join(sorted(str(kind).removeprefix("torch.") for kind in types))
    return replace(found, ran=f"one layer of each kind {FOR_INFERENCE} in {names}")


def difference_of_small(model: Any, plan: Plan, session: Session) -> str:
    """The difference between the small instance on the ranks and here, in words; empty if they agree."""
    try:
        small, inputs = proven_inputs(model)
        skeleton = dismantle(small, kept_types(small, None))[0]
        part = check_fit(skeleton, fitting(without_units(plan), small), len(session.devices))[0]
        key = (type(model), repr(small.config), str(part), session.devices)
    except PlanError:  # no small instance, or it does not divide over the ranks
        return ""
    if key not in _AGREED:
        found = _compared_once(probe_with(small, inputs), part, session, kept_types(small, None), False)
        if found.said:
            return found.said
        _AGREED.add(key)
    return ""


def _compared_once(probe: Probe, plan: Plan, session: Session, kept: Any, half: bool) -> ComparedOnRanks:
    try:
        placement = _placed(probe.model, fitting(plan, probe.model), session, kept)
        said = probe.difference(lambda inputs: placement.call("forward", (), dict(inputs)), half)
        return ComparedOnRanks(said, placement)
    except RemoteError as error:
        return ComparedOnRanks(str(error).strip().splitlines()[-1])
    except Exception as error:
        if session.ended:
            raise
        return ComparedOnRanks(one_line(error, 200))


def _placed(model: torch.nn.Module, plan: Plan, session: Session, kept: Any) -> Placement:
    skeleton, tensors = dismantle(model, kept)
    pieces = apply(assemble_model(skeleton, META)[0], plan, FakeGroup(len(session.devices))).resolution.pieces
    parameters = {n: item.name for n, item in enumerate(skeleton.items) if item.parameter}
    split = {n: pieces[name] for n, name in parameters.items() if name in pieces}
    borrowed = [
        tensor.detach() for tensor in tensors
    ]  # the hand-over empties these aliases, not the model's own tensors
    placement = place(session, skeleton, borrowed, plan, split, False, False)
    placement.lent = {item.name: number for number, item in enumerate(skeleton.items) if item.parameter}
    placement.on_trial()
    return placement


def refuse_difference(said: str) -> None:
    """Raise ``ApplyError`` for a difference, if there is one."""
    if said:
        raise ApplyError(
            f"one layer of each kind gives other numbers on the ranks than here ({said}); the plan is wrong for this "
            "model, which is unchanged: give another plan=, or run it on one device"
        )
