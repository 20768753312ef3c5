"""Fit a plan to a model and a number of ranks: each rank gets whole heads, and parts that cannot be divided stay whole.

The model is assembled on the meta device, sharded as for one of the ranks, and run once without data.
"""

from __future__ import annotations

import functools
import itertools
import logging
from dataclasses import dataclass, field, replace

import torch

from modular_converter.parallel.choice.kinds_of_layers import kinds_of, one_of_each_kind
from modular_converter.parallel.choice.proven_layers import without_parts
from modular_converter.parallel.choice.skeleton import Skeleton, assemble_model
from modular_converter.parallel.choice.trial_inputs import TYPES, bare, inputs_of_bare
from modular_converter.parallel.choice.trials import Trial, trials
from modular_converter.parallel.choice.without_data import (
    META,
    Guesses,
    tried_without_data,
)
from modular_converter.parallel.errors import ApplyError, MisfitError, one_line
from modular_converter.parallel.plans.patterns import matches, wildcard
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Piece, fitting
from modular_converter.parallel.proof.compare import failed_in
from modular_converter.parallel.shard.apply import apply
from modular_converter.parallel.shard.collectives import FakeGroup
from modular_converter.parallel.shard.shares import is_uneven, share_lengths
from modular_converter.parallel.shard.units import unknown_cut, with_units
from modular_converter.parallel.trace.graph import Trace
from modular_converter.parallel.trace.record import record


logger = logging.getLogger(__name__)
# A model is refused after so many parts were left whole, one by one.
_MOST_PARTS = 16
# The latest results: the choice of a plan and the hand-over need the same.
_LATEST: dict[tuple[Skeleton, str, int], Fit] = {}
_MOST_LATEST = 8


@dataclass(frozen=True)
class Fit:
    """A plan that fits.

    Attributes:
        plan: with the units that these ranks need, and without the parts that stay whole.
        generic: the plan without these units, for instances of other sizes.
        pieces: name of a parameter -> its split.
        uneven: whether some ranks hold more of an axis than others, or copies.
        whole: part that stays whole -> the reason.
        untried: why no trial could run the model, with or without data; empty if one could.
    """

    plan: Plan
    generic: Plan
    pieces: dict[str, Piece]
    uneven: bool
    whole: dict[str, str] = field(default_factory=dict)
    untried: str = ""


def fit(skeleton: Skeleton, plan: Plan, size: int, model: torch.nn.Module | None = None) -> Fit:
    """The plan as it fits a model on ``size`` ranks.

    Args:
        model: with its data, which are used if no run without data is possible.

    Raises ``ApplyError`` if a rule does not fit the model, or nothing is left to shard.
    """
    key = (skeleton, str(plan), size)
    if key not in _LATEST:
        _LATEST[key] = found = _fit(skeleton, plan, size, model)
        _LATEST.setdefault((skeleton, str(found.plan), size), replace(found, whole={}))
        for oldest in list(_LATEST)[:-_MOST_LATEST]:
            del _LATEST[oldest]
    return _LATEST[key]


def _fit(skeleton: Skeleton, plan: Plan, size: int, given: torch.nn.Module | None) -> Fit:
    even = _cut_evenly(skeleton, plan, size, given)
    model, trace = assemble_model(skeleton, META)[0], _trace(skeleton, given)
    untried = "" if trace is not None or size == 1 else _untried(skeleton, given)
    # Equal shares may still cut through a head: two ranks would get one and a half of three heads.
    made = _with_units(plan, model, trace, size)
    if even is not None and made == plan:
        return Fit(plan, plan, even, False, untried=untried)
    whole: dict[str, str] = {}
    for _ in range(_MOST_PARTS):
        tried = _tried(skeleton, made, size, given)
        if isinstance(tried, dict):
            uneven = is_uneven(tried.values(), size) or shares_members(made)
            return Fit(made, plan, tried, uneven, whole, untried)
        left = without_part_around(model, plan, tried.place)
        if left is None:
            break
        part, plan = left
        whole[part] = str(tried)
        made = _with_units(plan, model, trace, size)
    raise ApplyError(
        f"num_gpus={size} does not fit this model: {tried}; without this part nothing would be left to shard"
    )


def _with_units(plan: Plan, model: torch.nn.Module, trace: Trace | None, size: int) -> Plan:
    """The plan with the units that the ranks need; unchanged without a trace."""
    return plan if trace is None else with_units(plan, model, trace, size)


def _cut_evenly(skeleton: Skeleton, plan: Plan, size: int, given: torch.nn.Module | None) -> dict[str, Piece] | None:
    """The split of the parameters, if all ranks get equal shares and the first rank's model runs; else None."""
    try:
        pieces = apply(assemble_model(skeleton, META)[0], plan, FakeGroup(size)).resolution.pieces
    except MisfitError:
        return None
    even = not is_uneven(pieces.values(), size)
    return pieces if even and isinstance(_on_rank(skeleton, plan, size, 0, given), dict) else None


def _tried(skeleton: Skeleton, plan: Plan, size: int, given: torch.nn.Module | None) -> dict[str, Piece] | MisfitError:
    """The split of the parameters, or the first reason against it, from one rank of each set of share lengths."""
    found = _on_rank(skeleton, plan, size, 0, given)
    if not isinstance(found, dict):
        return found
    if unknown := unknown_cut(found, size):
        said = "its axis cannot be followed in a run without data, so only equal shares are known to be right"
        return MisfitError(unknown, f"{unknown}: {said}")
    cut = [piece for piece in found.values() if piece.dim >= 0]
    lengths = zip(*(share_lengths(piece.length, piece.parts, size, piece.units) for piece in cut))
    firsts = {own: rank for rank, own in reversed(list(enumerate(lengths)))}
    tried = (_on_rank(skeleton, plan, size, rank, given) for rank in sorted(firsts.values()) if rank)
    return next((result for result in tried if not isinstance(result, dict)), found)


def shares_members(plan: Plan) -> bool:
    """Whether there are more ranks than units of some weight."""
    return any(rule.members for rule in plan.rules)


def _on_rank(
    skeleton: Skeleton, plan: Plan, size: int, rank: int, given: torch.nn.Module | None
) -> dict[str, Piece] | MisfitError:
    """The split of the parameters; or the place and reason, if the rank's model does not run but the whole model does.

    The whole model runs only after a failure, since 32 layers take a second.
    """
    try:
        pieces = apply(bare(skeleton, None), plan, FakeGroup(size, rank)).resolution.pieces
    except MisfitError as error:
        return error
    for trial in trials(skeleton, given) if size > 1 else ():
        model = trial.model()
        apply(model, fitting(plan, model), FakeGroup(size, rank))
        problem = _forward(trial, model)
        if problem is None:
            return pieces
        if _forward(trial, trial.model()) is None:
            return problem
    return pieces


def _forward(trial: Trial, model: torch.nn.Module) -> MisfitError | None:
    """The place and reason if the model, or one rank's, does not run."""
    try:
        trial.run(model)
    except Exception as error:  # whatever a model's own code raises
        place = failed_in(error, model)
        return MisfitError(place, f"{place}: {one_line(error)}")
    return None


def _untried(skeleton: Skeleton, given: torch.nn.Module | None) -> str:
    """The reason why no trial can run the whole model; empty if one can."""
    why = ""
    for trial in trials(skeleton, given):
        problem = _forward(trial, trial.model())
        if problem is None:
            return ""
        why = why or str(problem)
    return why


def _trace(skeleton: Skeleton, given: torch.nn.Module | None) -> Trace | None:
    """A forward of one layer of each kind, or of all layers, without data, else with data; None if it does not run."""
    why = ""
    for short, kind in itertools.product((True, False), TYPES):
        model = bare(skeleton, kind)
        try:
            traced = one_of_each_kind(model, kinds_of(model)) if short else model
            inputs = inputs_of_bare(traced.eval(), kind)
            with Guesses():
                return tried_without_data(functools.partial(record, traced, inputs))
        except Exception as error:  # raised by the model's own code for unexpected inputs
            why = one_line(error)
    for trial in (one for one in trials(skeleton, given) if one.filled is not None):
        try:
            return record(trial.model(), trial.inputs())
        except Exception as error:  # raised by the model's own code
            why = one_line(error)
    logger.info("heads cannot be read off the model's axes: %s", why)
    return None


def without_part_around(model: torch.nn.Module, plan: Plan, place: str) -> tuple[str, Plan] | None:
    """The part of a model around a place, in all layers, and the plan without it; None if that plan cuts nothing."""
    part = wildcard(_part_around(model, plan, place))
    alike = {path for path, _ in model.named_modules() if wildcard(path) == part}
    left = without_parts(plan, model, alike)
    return (part, left) if part and any(rule.layout.cuts for rule in left.rules) else None


def _part_around(model: torch.nn.Module, plan: Plan, place: str) -> str:
    """The nearest module around a place that has weights with a rule; for a single layer, the module that owns it."""
    modules = dict(model.named_modules())
    leaf = place if place in modules else place.rpartition(".")[0]
    apart = [rule for rule in plan.rules if rule.layout.whole_outside]
    path = leaf
    if leaf in modules and next(modules[leaf].children(), None) is None:
        if any(matches(rule.pattern, [leaf, f"{leaf}.weight"]) for rule in apart):
            return leaf
        path = leaf.rpartition(".")[0]
    while path:
        if without_parts(plan, model, {path}) != plan:
            return path
        path = path.rpartition(".")[0]
    return leaf if leaf and without_parts(plan, model, {leaf}) != plan else ""
