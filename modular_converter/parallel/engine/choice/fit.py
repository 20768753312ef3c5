"""Fit a plan to a model and a number of ranks: each rank gets whole heads, and parts that cannot be divided stay whole.

The model is assembled on the meta device, sharded as for one of the ranks, and run once without data.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from modular_converter.parallel.engine.base.skeleton import Skeleton, assemble_model
from modular_converter.parallel.engine.base.without_data import (
    META,
    Guesses,
    on_meta,
    run_without_data,
    tried_without_data,
)
from modular_converter.parallel.engine.choice.kinds_of_layers import kinds_of, one_of_each_kind
from modular_converter.parallel.engine.choice.proven_layers import without_parts
from modular_converter.parallel.errors import ApplyError, MisfitError, one_line
from modular_converter.parallel.plans.patterns import matches, wildcard
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Piece
from modular_converter.parallel.proof.compare import failed_in
from modular_converter.parallel.shard.apply import apply
from modular_converter.parallel.shard.shares import is_uneven, share_lengths
from modular_converter.parallel.shard.units import WHOLE_OUTSIDE, unknown_cut, with_units
from modular_converter.parallel.styles import STYLES
from modular_converter.parallel.tiny.inputs import make_inputs
from modular_converter.parallel.trace.graph import Trace
from modular_converter.parallel.trace.record import record


logger = logging.getLogger(__name__)
# A model is refused after so many parts were left whole, one by one.
_MOST_PARTS = 16
# The model's own types, and the type in which all operations run without data, such as grouped products.
TYPES = (None, torch.bfloat16)
# The latest results: the choice of a plan and the hand-over need the same.
_LATEST: dict[tuple[Skeleton, str, int], Fit] = {}
_INPUTS: dict[tuple[Skeleton, torch.dtype | None], dict[str, Any] | str] = {}
_MOST_LATEST = 8


class OneOf:
    """One rank of a group that does not exist: its collectives give results of the right shapes."""

    def __init__(self, size: int, rank: int = 0) -> None:
        self.rank, self.size = rank, size

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.clone()

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        return [tensor] * self.size


@dataclass(frozen=True)
class Fit:
    """A plan that fits.

    Attributes:
        plan: with the units that these ranks need, and without the parts that stay whole.
        generic: the plan without these units, for instances of other sizes.
        pieces: name of a parameter -> its split.
        uneven: whether some ranks hold more of an axis than others, or copies.
        whole: part that stays whole -> the reason.
    """

    plan: Plan
    generic: Plan
    pieces: dict[str, Piece]
    uneven: bool
    whole: dict[str, str] = field(default_factory=dict)


def fit(skeleton: Skeleton, plan: Plan, size: int) -> Fit:
    """The plan as it fits a model on ``size`` ranks.

    Raises ``ApplyError`` if a rule does not fit the model, or nothing is left to shard.
    """
    key = (skeleton, str(plan), size)
    if key not in _LATEST:
        _LATEST[key] = found = _fit(skeleton, plan, size)
        _LATEST.setdefault((skeleton, str(found.plan), size), replace(found, whole={}))
        for oldest in list(_LATEST)[:-_MOST_LATEST]:
            del _LATEST[oldest]
    return _LATEST[key]


def _fit(skeleton: Skeleton, plan: Plan, size: int) -> Fit:
    even = _cut_evenly(skeleton, plan, size)
    model, trace = assemble_model(skeleton, META)[0], _trace(skeleton)
    # Equal shares may still cut through a head: two ranks would get one and a half of three heads.
    made = _with_units(plan, model, trace, size)
    if even is not None and made == plan:
        return Fit(plan, plan, even, False)
    whole: dict[str, str] = {}
    for _ in range(_MOST_PARTS):
        tried = _tried(skeleton, made, size)
        if isinstance(tried, dict):
            return Fit(made, plan, tried, is_uneven(tried.values(), size) or shares_members(made), whole)
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


def _cut_evenly(skeleton: Skeleton, plan: Plan, size: int) -> dict[str, Piece] | None:
    """The split of the parameters, if all ranks get equal shares and the first rank's model runs; else None."""
    try:
        pieces = apply(assemble_model(skeleton, META)[0], plan, OneOf(size)).resolution.pieces
    except MisfitError:
        return None
    return (
        pieces
        if not is_uneven(pieces.values(), size) and isinstance(_on_rank(skeleton, plan, size, 0), dict)
        else None
    )


def _tried(skeleton: Skeleton, plan: Plan, size: int) -> dict[str, Piece] | MisfitError:
    """The split of the parameters, or the first reason against it, from one rank of each set of share lengths."""
    found = _on_rank(skeleton, plan, size, 0)
    if not isinstance(found, dict):
        return found
    if unknown := unknown_cut(found, size):
        said = "its axis cannot be followed in a run without data, so only equal shares are known to be right"
        return MisfitError(unknown, f"{unknown}: {said}")
    cut = [piece for piece in found.values() if piece.dim >= 0]
    lengths = zip(*(share_lengths(piece.length, piece.parts, size, piece.units) for piece in cut))
    firsts = {own: rank for rank, own in reversed(list(enumerate(lengths)))}
    tried = (_on_rank(skeleton, plan, size, rank) for rank in sorted(firsts.values()) if rank)
    return next((result for result in tried if not isinstance(result, dict)), found)


def shares_members(plan: Plan) -> bool:
    """Whether there are more ranks than units of some weight."""
    return any(rule.members for rule in plan.rules)


def _on_rank(skeleton: Skeleton, plan: Plan, size: int, rank: int) -> dict[str, Piece] | MisfitError:
    """The split of the parameters; or the place and reason, if the rank's model does not run but the whole model does.

    The whole model runs only after a failure, since 32 layers take a second.
    """
    pieces: dict[str, Piece] = {}
    for kind in TYPES:
        model = bare(skeleton, kind)
        try:
            pieces = apply(model, plan, OneOf(size, rank)).resolution.pieces
        except MisfitError as error:
            return error
        problem = _forward(skeleton, model, kind) if size > 1 else None
        if problem is None:
            return pieces
        if _forward(skeleton, bare(skeleton, kind), kind) is None:
            return problem
    return pieces


def bare(skeleton: Skeleton, kind: torch.dtype | None) -> torch.nn.Module:
    """The whole model without data, converted to ``kind`` unless it is None."""
    model = assemble_model(skeleton, META)[0]
    return model if kind is None else model.to(kind)


def inputs_without_data(skeleton: Skeleton, kind: torch.dtype | None) -> dict[str, Any]:
    """The likeliest inputs of a model without data, floating tensors converted to ``kind`` unless it is None.

    Tensors are kept for the next rank, and the error if no inputs are known: to try four layouts of images of 1540
    pixels takes 0.8 s.
    """
    key = skeleton, kind
    found = _INPUTS.get(key)
    if found is None:
        try:
            found = _without_data(make_inputs(bare(skeleton, kind).eval()), kind)
        except Exception as error:  # raised by the model's own code, or there are no inputs for it
            found = one_line(error)
        values = found.values() if isinstance(found, dict) else ()
        if all(isinstance(value, (torch.Tensor, bool, int, type(None))) for value in values):  # no caches
            _INPUTS[key] = found
        for oldest in list(_INPUTS)[:-_MOST_LATEST]:
            del _INPUTS[oldest]
    if isinstance(found, str):
        raise ApplyError(f"no inputs are known: {found}")
    return dict(found)


def _without_data(inputs: Mapping[str, Any], kind: torch.dtype | None) -> dict[str, Any]:
    given = {name: on_meta(value) for name, value in inputs.items()}
    if kind is None:
        return given
    floating = {n: v for n, v in given.items() if isinstance(v, torch.Tensor) and v.is_floating_point()}
    return given | {name: value.to(kind) for name, value in floating.items()}


def _forward(skeleton: Skeleton, model: Any, kind: torch.dtype | None) -> MisfitError | None:
    """The place and reason if the model, or one rank's, does not run."""
    try:
        given = inputs_without_data(skeleton, kind)
        tried_without_data(lambda: run_without_data(model.eval(), kwargs=given))
    except Exception as error:  # whatever a model's own code raises
        place = failed_in(error, model)
        return MisfitError(place, f"{place}: {one_line(error)}")
    return None


def _trace(skeleton: Skeleton) -> Trace | None:
    """A forward of one layer of each kind, or of all layers, without data; None if it does not run."""
    why = ""
    for short, kind in itertools.product((True, False), TYPES):
        model = bare(skeleton, kind)
        try:
            traced = one_of_each_kind(model, kinds_of(model)) if short else model
            given = _without_data(make_inputs(traced), kind)
            with Guesses():
                return tried_without_data(functools.partial(record, traced.eval(), given))
        except Exception as error:  # raised by the model's own code for unexpected inputs
            why = one_line(error)
    logger.info("heads cannot be read off the model's axes: %s", why)
    return None


def without_part_around(model: torch.nn.Module, plan: Plan, place: str) -> tuple[str, Plan] | None:
    """The part of a model around a place, in all layers, and the plan without it; None if that plan cuts nothing."""
    part = wildcard(_part_around(model, plan, place))
    alike = {path for path, _ in model.named_modules() if wildcard(path) == part}
    left = without_parts(plan, model, alike)
    return (part, left) if part and any(STYLES[rule.style].cuts for rule in left.rules) else None


def _part_around(model: torch.nn.Module, plan: Plan, place: str) -> str:
    """The nearest module around a place that has weights with a rule; for a single layer, the module that owns it."""
    modules = dict(model.named_modules())
    leaf = place if place in modules else place.rpartition(".")[0]
    apart = [rule for rule in plan.rules if STYLES[rule.style].inference in WHOLE_OUTSIDE]
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
