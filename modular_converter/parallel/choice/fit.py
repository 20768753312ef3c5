"""Fit a plan to a model and a number of ranks: each rank gets whole heads, and parts that cannot be divided stay whole.

The model is assembled on the meta device, sharded as for one of the ranks, and run once without data.

A plan holds only for the kinds of parts in its proof; unequal shares are tried on a small instance, over ranks that make
them so.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from modular_converter.findings import first_of
from modular_converter.parallel.choice.skeleton import (
    META,
    Guesses,
    Skeleton,
    assemble_model,
    skeleton_of,
    tried_without_data,
)
from modular_converter.parallel.choice.small_instances import (
    builds,
    derived_plan,
    settings_with_layers,
    small_instance,
    small_settings,
    target_like,
    verified,
)
from modular_converter.parallel.choice.trials import (
    TYPES,
    Trial,
    inputs_on_meta,
    inputs_with_data,
    kinds_by_modules,
    kinds_of,
    kinds_of_rest,
    model_without_data,
    one_of_each_kind,
    traced_kinds,
    trial_with_data,
    trials,
    with_data,
)
from modular_converter.parallel.errors import ApplyError, MisfitError, PlanError, one_line
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.resolve import Piece, fitting
from modular_converter.parallel.plans.text_checks import is_inside, matches, names_of_parts, placed, wildcard
from modular_converter.parallel.proof.compare import failed_in
from modular_converter.parallel.proof.judge import Verdict
from modular_converter.parallel.proof.on_ranks import check_model_on_threads
from modular_converter.parallel.shard.apply import apply
from modular_converter.parallel.shard.collectives import FakeGroup
from modular_converter.parallel.shard.shares import is_uneven, share_lengths, unknown_cut, with_units
from modular_converter.parallel.tiny.build import MOST_PARAMETERS, fresh
from modular_converter.parallel.tiny.uses import lengths_named, with_length
from modular_converter.parallel.trace.graph import Trace
from modular_converter.parallel.trace.layer_kinds import CUT, Kind, is_shown_by
from modular_converter.parallel.trace.record import record


logger = logging.getLogger(__name__)
_NAMED = 3


def restricted_to_layers(model: Any, plan: Plan, origin: str, ranks: int, own: bool) -> tuple[Plan, str]:
    """The plan, restricted to parts of proven kinds, and its origin with a note on these parts.

    A part that cannot be proven stays whole, and a warning names it.

    Args:
        own: whether the plan is from the model's classes; then it is proven again, and not derived again.
    """
    proven = _proven_too(model, plan, ranks, anew=not own)
    if not proven.unknown:
        return proven.plan, origin + proven.note
    note = _few(proven.unknown)
    logger.warning(
        "%s: these parts stay whole, since no small instance has their kind: %s", type(model).__name__, note
    )
    origin += f"{proven.note}; left whole, since not proven: {note}"
    return without_parts(proven.plan, model, set(proven.unknown)), origin


def scope_of_proof(model: Any, plan: Plan, ranks: int) -> str:
    """The scope of a given plan's proof, for its origin; a warning names the parts outside."""
    proven = _proven_too(model, plan, ranks, anew=False)
    if not proven.unknown:
        return proven.note
    note = f"{proven.note}; not proven on parts of kinds that no small instance has: {_few(proven.unknown)}"
    logger.warning("%s: the given plan is%s", type(model).__name__, note.removeprefix(";"))
    return note


@dataclass(frozen=True)
class _ProvenPlan:
    """A plan, a note on its proof, and the unproven parts that it shards.

    Attributes:
        unknown: part -> its difference from all proven parts.
    """

    plan: Plan
    note: str
    unknown: dict[str, str]


def _proven_too(model: Any, plan: Plan, ranks: int, anew: bool) -> _ProvenPlan:
    """Prove a plan also for the kinds of parts that the small instance lacks, as far as possible.

    The second proof is on a small instance with the model's own list of layers, the third on one layer of each kind of
    the model itself, if these have few weights.

    Args:
        anew: derive a new plan for the second proof.
    """
    target, overrides = target_like(model), small_settings(model)
    unknown = unproven_parts(model, fresh(target, overrides, small_instance(target, overrides).strategy))
    if not unknown:
        return _ProvenPlan(plan, "; every layer is of a kind that was proven", unknown)
    unknown, note = _reached(plan, model, unknown), ""
    deeper = settings_with_layers(model, target, overrides)
    if deeper != overrides and builds(target, deeper):
        found = derived_plan(target, deeper, ranks) if anew else None
        verdict = verified(target, deeper, ranks, plan) if found is None else found.verdict
        if verdict.passed:
            plan = plan if found is None else found.plan
            own_list = fresh(target, deeper, small_instance(target, deeper).strategy)
            unknown = _reached(plan, model, unproven_parts(model, own_list))
            note = "; proven with the model's own list of layers too"
        else:
            note = f"; refused with the model's own list of layers ({placed(verdict.layer, verdict.reason)})"
    if unknown and _holds_on_itself(model, plan, ranks):
        return _ProvenPlan(plan, "; proven on one layer of each kind of the model itself", {})
    return _ProvenPlan(plan, note, unknown)


def _few(parts: dict[str, str]) -> str:
    """The first parts with their differences, as text."""
    return first_of([f"{path or 'the code around the layers'} ({why})" for path, why in parts.items()], _NAMED)


def unproven_parts(model: torch.nn.Module, small: torch.nn.Module) -> dict[str, str]:
    """Path of each layer, or module outside of layers, whose kind the small instance lacks -> the nearest difference."""
    kinds, known = traced_kinds(model), traced_kinds(small)
    if kinds is None or known is None:
        kinds, known = kinds_by_modules(model), kinds_by_modules(small)
    found: dict[str, str] = {}
    rest = _rest(model, kinds.pop("", frozenset()))
    known_rest = _rest(small, known.pop("", frozenset()))
    known_rest[""] &= rest[""]  # code that the model does not run is no difference
    for path, kind in kinds.items():
        alike = [other for name, other in known.items() if name.rpartition(".")[0] == path.rpartition(".")[0]]
        if not any(is_shown_by(kind, other) for other in alike):
            found[path] = _difference(kind, min(alike, key=lambda other: len(other ^ kind), default=frozenset()))
    for path, kind in rest.items():
        if path not in known_rest or not is_shown_by(kind, known_rest[path]):
            found[path] = _difference(kind, known_rest.get(path, frozenset()))
    return found


def _rest(model: torch.nn.Module, around: Kind) -> dict[str, Kind]:
    """Path -> kind, with operations, of each module with weights outside of layers; ``""`` -> the other operations."""
    found = {path: kind | {fact for fact in around if fact[2] == path} for path, kind in kinds_of_rest(model).items()}
    return {**found, "": frozenset(fact for fact in around if fact[2] not in found)}


def _difference(kind: Kind, nearest: Kind) -> str:
    """The first fact that distinguishes two kinds, in words."""
    for facts, word in ((kind - nearest, "has"), (nearest - kind, "lacks")):
        if facts:
            first = min(facts, key=lambda fact: (_ORDER.index(fact[0]), fact))
            return f"{word} {first[0]} {' '.join(part for part in first[1:] if part)}"
    return "no part like it"


def _reached(plan: Plan, model: torch.nn.Module, parts: dict[str, str]) -> dict[str, str]:
    """The parts that a rule of the plan shards; the other parts are whole in any case."""
    names = names_of_parts(model)
    patterns = [rule.pattern for rule in plan.rules] + [line.partition(":")[0] for line in plan.attributes]
    reached = {name for pattern in patterns for name in matches(pattern, names)}
    return {path: why for path, why in parts.items() if any(is_inside(name, path) for name in reached)}


_ORDER = ("class", "weight", "setting", "operation", "integer", CUT)


def _holds_on_itself(model: Any, plan: Plan, ranks: int) -> bool:
    """Whether a plan is right on one layer of each kind of the model itself."""
    made = with_data(model, MOST_PARAMETERS)
    if made is None:
        return False
    try:
        inputs = inputs_with_data(made)
        trace = record(made, inputs)
        fits = with_units(fitting(plan, made), made, trace, ranks)
        return all(check_model_on_threads(made, fits, given, ranks).passed for given in _at_lengths(trace, inputs))
    except Exception as error:  # raised by the model's own code for unexpected inputs, or for so few layers
        logger.info("%s cannot be tried on its own layers: %s", type(model).__name__, error)
        return False


def _at_lengths(trace: Trace, inputs: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The inputs, and the same with more ids than the numbers in the code name."""
    yield inputs
    ids = inputs.get("input_ids")
    if isinstance(ids, torch.Tensor) and ids.dim() == 2:
        for length in lengths_named(trace, ids.shape[1]):
            yield with_length(inputs, length)


def without_parts(plan: Plan, model: torch.nn.Module, parts: set[str]) -> Plan:
    """The plan with some parts whole, and all that have their weights: a pattern that matches one is replaced by its other matches."""
    names, weights = names_of_parts(model), list(model.named_parameters(remove_duplicate=False))
    whole = {id(one) for name, one in weights if any(is_inside(name, part) for part in parts)}
    shared = [name for name, one in weights if id(one) in whole]
    parts = parts | {name.rpartition(".")[0] for name in shared if not any(is_inside(name, part) for part in parts)}

    def left_of(pattern: str) -> list[str] | None:
        """The matches outside of the parts; None if all are outside."""
        reached = matches(pattern, names)
        left = [name for name in reached if not any(is_inside(name, part) for part in parts)]
        return None if len(left) == len(reached) else left

    rules: list[PlanRule] = []
    for rule in plan.rules:
        left = left_of(rule.pattern)
        rules += [rule] if left is None else [replace(rule, pattern=name) for name in left]
    attributes: list[str] = []
    for attribute in plan.attributes:
        pattern, _, field = attribute.partition(":")
        left = left_of(pattern)
        attributes += [attribute] if left is None else [f"{name}:{field}" for name in left]
    return replace(plan, rules=tuple(rules), attributes=tuple(attributes))


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
    model, trace = assemble_model(skeleton, META)[0], _trace(skeleton, given)
    untried = "" if trace is not None or size == 1 else _untried(skeleton, plan, given)
    # Equal shares may still cut through a head: two ranks would get one and a half of three heads.
    made = _with_units(plan, model, trace, size)
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


def _tried(skeleton: Skeleton, plan: Plan, size: int, given: torch.nn.Module | None) -> dict[str, Piece] | MisfitError:
    """The split of the parameters, or the first reason against it, from one rank of each set of share lengths."""
    found = _on_rank(skeleton, plan, size, 0, given)
    if not isinstance(found, dict):
        return found
    if unknown := unknown_cut(found, size):
        note = "its axis cannot be followed in a run without data, so only equal shares are known to be right"
        return MisfitError(unknown, f"{unknown}: {note}")
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
        pieces = apply(model_without_data(skeleton, None), plan, FakeGroup(size, rank)).resolution.pieces
    except MisfitError as error:
        return error
    for trial in trials(skeleton, plan, given) if size > 1 else ():
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


def _untried(skeleton: Skeleton, plan: Plan, given: torch.nn.Module | None) -> str:
    """The reason why no trial can run the whole model; empty if one can."""
    why = ""
    for trial in trials(skeleton, plan, given):
        problem = _forward(trial, trial.model())
        if problem is None:
            return ""
        why = why or str(problem)
    return why


def _trace(skeleton: Skeleton, given: torch.nn.Module | None) -> Trace | None:
    """A forward of one layer of each kind, or of all layers, without data, else with data; None if it does not run."""
    why = ""
    for short, kind in itertools.product((True, False), TYPES):
        model = model_without_data(skeleton, kind)
        try:
            traced = one_of_each_kind(model, kinds_of(model, skeleton)) if short else model
            inputs = inputs_on_meta(traced.eval(), kind)
            with Guesses():
                return tried_without_data(functools.partial(record, traced, inputs))
        except Exception as error:  # raised by the model's own code for unexpected inputs
            why = one_line(error)
    trial = None if given is None else trial_with_data(skeleton, given)
    if trial is not None:
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


# Few lengths of a small instance divide by these numbers; it has fewer key/value heads than the second number.
UNEVEN_RANKS, MORE_RANKS = 3, 6
_MOST_WRONG_PARTS = 4


def fitted(model: Any, plan: Plan, origin: str, size: int, ranks: int, given: bool) -> tuple[Plan, str]:
    """The plan as it fits a model on ``size`` ranks, and its origin with a note on the fit.

    A part stays whole if it cannot be divided, or if its unequal shares give wrong numbers.

    Args:
        ranks: of the small instance that has proven the plan.
        given: whether the plan is the caller's; then a refusal by the small instance is only a warning.

    Raises ``ApplyError`` if nothing would be left to shard, the rest of the plan is wrong without the whole parts, or no
    trial can run the model.
    """
    skeleton = skeleton_of(model)
    found, whole = fit(skeleton, plan, size, model), dict[str, str]()
    if found.untried and not given:
        raise ApplyError(untried(type(model).__name__, found.untried))
    for turn in range(_MOST_WRONG_PARTS):
        whole |= found.whole
        verdict = _verdict(model, found, ranks, bool(whole))
        if verdict is None or verdict.passed or given:
            break
        left = without_part_around(model, found.generic, verdict.layer)
        if left is None or turn == _MOST_WRONG_PARTS - 1:
            raise ApplyError(_refused(size, whole, verdict))
        part, rest = left
        whole[part] = f"its unequal shares are refused: {placed(verdict.layer, verdict.reason)}"
        found = fit(skeleton, rest, size, model)
    if verdict is not None and not verdict.passed:
        logger.warning("unequal shares are refused by a small instance: %s", placed(verdict.layer, verdict.reason))
    name = type(model).__name__
    for part, why in whole.items():
        logger.warning("%s: %s stays whole on each of %d ranks, %s: %s", name, part, size, _bytes(model, part), why)
    note = (
        f"; unequal shares, verified on {_ranks(found)} ranks"
        if found.uneven and verdict is not None and verdict.passed
        else ""
    )
    note += f"; whole on each rank: {', '.join(whole)}" if whole else ""
    return found.plan, origin + note


def untried(name: str, why: str) -> str:
    """The refusal of a plan without a trial of the model, in words."""
    return (
        f"{name} cannot be sharded: no trial shows that a rank computes the same, since the model runs neither without "
        f"data nor, with one layer of each kind, with random numbers ({why}); give a plan that you have checked as plan="
    )


def _ranks(found: Fit) -> int:
    return MORE_RANKS if shares_members(found.plan) else UNEVEN_RANKS


def _verdict(model: Any, found: Fit, ranks: int, left_whole: bool) -> Verdict | None:
    """The small instance's verdict on what is not proven yet; None if all is proven, or without a small instance."""
    if not found.uneven and not left_whole:
        return None
    try:
        target, overrides = target_like(model), small_settings(model)
        verdict = verified(target, overrides, ranks, found.generic) if left_whole else None
        if found.uneven and (verdict is None or verdict.passed):
            verdict = verified(target, overrides, _ranks(found), found.generic, uses=False)
        return verdict
    except PlanError as error:
        logger.info("the fit is not proven: %s", str(error).splitlines()[0])
        return None


def _refused(size: int, whole: dict[str, str], verdict: Verdict) -> str:
    why = placed(verdict.layer, verdict.reason)
    parts = f" with {', '.join(whole)} whole" if whole else ""
    return f"num_gpus={size} does not fit this model{parts}: a small instance refuses the plan ({why})"


def _bytes(model: Any, part: str) -> str:
    """The size of a part's parameters, as text."""
    owners = matches(part, [path for path, _ in model.named_modules()])
    size = sum(p.numel() * p.element_size() for path in owners for p in model.get_submodule(path).parameters())
    return f"{size / 1e6:.1f} MB"
