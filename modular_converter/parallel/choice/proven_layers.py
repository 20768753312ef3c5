"""Compare the parts of a user's model with a small instance: a plan holds only for the kinds of parts in its proof."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from modular_converter.findings import first_of
from modular_converter.parallel.choice.kinds_of_layers import (
    kinds_by_modules,
    kinds_of_rest,
    traced_kinds,
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
from modular_converter.parallel.choice.trial_inputs import inputs_with_data
from modular_converter.parallel.choice.trials import with_data
from modular_converter.parallel.plans.patterns import is_inside, matches, names_of_parts
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.resolve import fitting
from modular_converter.parallel.plans.text_checks import placed
from modular_converter.parallel.proof.on_threads import check_model_on_threads
from modular_converter.parallel.shard.units import with_units
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
    held = _proven_too(model, plan, ranks, anew=not own)
    if not held.unknown:
        return held.plan, origin + held.said
    said = _few(held.unknown)
    logger.warning(
        "%s: these parts stay whole, since no small instance has their kind: %s", type(model).__name__, said
    )
    origin += f"{held.said}; left whole, since not proven: {said}"
    return without_parts(held.plan, model, set(held.unknown)), origin


def said_of_given(model: Any, plan: Plan, ranks: int) -> str:
    """The scope of a given plan's proof, for its origin; a warning names the parts outside."""
    held = _proven_too(model, plan, ranks, anew=False)
    if not held.unknown:
        return held.said
    said = f"{held.said}; not proven on parts of kinds that no small instance has: {_few(held.unknown)}"
    logger.warning("%s: the given plan is%s", type(model).__name__, said.removeprefix(";"))
    return said


@dataclass(frozen=True)
class _Held:
    """A plan, a note on its proof, and the unproven parts that it shards.

    Attributes:
        unknown: part -> its difference from all proven parts.
    """

    plan: Plan
    said: str
    unknown: dict[str, str]


def _proven_too(model: Any, plan: Plan, ranks: int, anew: bool) -> _Held:
    """Prove a plan also for the kinds of parts that the small instance lacks, as far as possible.

    The second proof is on a small instance with the model's own list of layers, the third on one layer of each kind of
    the model itself, if these have few weights.

    Args:
        anew: derive a new plan for the second proof.
    """
    target, overrides = target_like(model), small_settings(model)
    unknown = unproven_parts(model, fresh(target, overrides, small_instance(target, overrides).strategy))
    if not unknown:
        return _Held(plan, "; every layer is of a kind that was proven", unknown)
    unknown, said = _reached(plan, model, unknown), ""
    deeper = settings_with_layers(model, target, overrides)
    if deeper != overrides and builds(target, deeper):
        found = derived_plan(target, deeper, ranks) if anew else None
        verdict = verified(target, deeper, ranks, plan) if found is None else found.verdict
        if verdict.passed:
            plan = plan if found is None else found.plan
            own_list = fresh(target, deeper, small_instance(target, deeper).strategy)
            unknown = _reached(plan, model, unproven_parts(model, own_list))
            said = "; proven with the model's own list of layers too"
        else:
            said = f"; refused with the model's own list of layers ({placed(verdict.layer, verdict.reason)})"
    if unknown and _holds_on_itself(model, plan, ranks):
        return _Held(plan, "; proven on one layer of each kind of the model itself", {})
    return _Held(plan, said, unknown)


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
    """The plan with some parts whole: a pattern that matches one of them is replaced by the names of its other matches."""
    names = names_of_parts(model)

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
