"""Compare the numbers that the code computes from shapes, on a rank and in the whole model, at the model's own sizes.

A number such as ``min(1.0, 1024 / weight.shape[0])`` may be the same on the ranks of a small instance and differ on the
ranks of the model. Runs without data show it in every layer.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from modular_converter.parallel.engine.base.skeleton import Skeleton, skeleton_of
from modular_converter.parallel.engine.base.without_data import META, run_without_data
from modular_converter.parallel.engine.choice.fit import (
    TYPES,
    OneOf,
    bare,
    fit,
    inputs_without_data,
    without_part_around,
)
from modular_converter.parallel.engine.choice.small_instances import (
    small_instance,
    small_settings,
    target_like,
    verified,
)
from modular_converter.parallel.errors import ApplyError, PlanError, one_line
from modular_converter.parallel.plans.patterns import wildcard
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import fitting
from modular_converter.parallel.plans.text_checks import placed
from modular_converter.parallel.proof.judge import Verdict, refused
from modular_converter.parallel.proof.numbers import Numbers, Place, differences, numbers_of
from modular_converter.parallel.proof.prove import Derived
from modular_converter.parallel.shard.apply import apply
from modular_converter.parallel.shard.units import without_units
from modular_converter.parallel.tiny.published import published


logger = logging.getLogger(__name__)
# The devices for new tensors of the code: first with data, so that their values are compared too.
_PLACES = (torch.device("cpu"), META)
# A model is refused after so many parts were left whole, one by one.
_MOST_PARTS = 8


def held_to_numbers(model: Any, plan: Plan, size: int, ranks: int, given: bool) -> tuple[Plan, str]:
    """The plan without the parts whose code computes other numbers from a rank's shapes, and a note for its origin.

    Numbers that also differ on the small instance's ranks are covered by its proof.

    Args:
        size: the ranks of the model.
        ranks: of the small instance that has proven the plan.
        given: whether the plan is the caller's; then it is unchanged, with a warning.

    Raises ``ApplyError`` if such code is in no part that can stay whole, or the rest of the plan is wrong without the part.
    """
    skeleton, name = skeleton_of(model), type(model).__name__
    whole = _numbers(skeleton, None, 1, 0)
    small = functools.cache(lambda: _known_of_model(model, plan, ranks))
    parts: dict[str, str] = {}
    while not isinstance(place := _first_new(skeleton, whole, plan, size, small), str):
        said = _in_words(place)
        if given:
            logger.warning("%s: a given plan changes the model's numbers: %s: %s", name, place[0][0], said)
            break
        left = without_part_around(model, plan, place[0][0])
        if left is None or len(parts) == _MOST_PARTS:
            raise ApplyError(f"{name} cannot be sharded: {place[0][0] or 'the model'}: {said}")
        part, plan = left
        parts[part] = said
        logger.warning("%s: %s stays whole on each of %d ranks: %s", name, part, size, said)
    if parts:
        verdict = verified(target_like(model), small_settings(model), ranks, without_units(plan))
        if not verdict.passed:
            raise ApplyError(
                f"{name}: the plan is wrong with {', '.join(parts)} whole: {placed(verdict.layer, verdict.reason)}"
            )
    if place:
        said = f"numbers that its code computes from shapes could not be compared ({place})"
        level = logging.INFO if given else logging.WARNING  # the author of a given plan has to prove it
        logger.log(level, "%s: %s: compare an answer with the answer of one device", name, said)
        return plan, f"; {said}"
    return plan, f"; whole, as their code computes numbers from shapes: {', '.join(parts)}" if parts else ""


def with_numbers(verdict: Verdict, derived: Derived, plan: Plan, ranks: int) -> Verdict:
    """The verdict on a plan; refused if code computes other numbers on a rank at the default sizes of the model's classes.

    If the numbers cannot be compared, the verdict's evidence says so.
    """
    if not verdict.passed:
        return verdict
    try:
        model = published(derived.target, dict(derived.overrides))
        skeleton = skeleton_of(model)
        plan, whole = fit(skeleton, fitting(plan, model), ranks).plan, _numbers(skeleton, None, 1, 0)
    except Exception as error:  # defaults that do not fit together, or a plan that shards nothing at these sizes
        return _with_gap(verdict, one_line(error, 100))
    place = _first_new(skeleton, whole, plan, ranks, lambda: _known(derived.small.model, plan, ranks))
    if isinstance(place, str):
        return _with_gap(verdict, place) if place else verdict
    return refused(ranks, place[0][0], f"{_in_words(place)}, at the default sizes of the model's classes")


def derived_with_numbers(derived: Derived) -> Derived:
    """The same, with the layers of such code whole if the rest of the plan holds, else with a refusal."""
    ranks = derived.verdict.ranks
    verdict = with_numbers(derived.verdict, derived, derived.plan, ranks)
    if verdict.passed or not derived.verdict.passed:
        return replace(derived, verdict=verdict)
    plan, again = derived.plan, verdict
    for _ in range(_MOST_PARTS):
        left = without_part_around(derived.small.model, plan, again.layer)
        if left is None:
            break
        plan = left[1]
        again = with_numbers(derived.checked(plan, ranks), derived, plan, ranks)
        if again.passed:
            return replace(derived, plan=plan, verdict=again, retreat=placed(verdict.layer, verdict.reason))
    return replace(derived, verdict=verdict)


def _with_gap(verdict: Verdict, why: str) -> Verdict:
    said = f"numbers that code computes from shapes at the default sizes of the model's classes ({why})"
    return replace(verdict, evidence=verdict.evidence.with_gap(said))


def _in_words(place: tuple[Place, str]) -> str:
    return f"its code computes {place[1]} on a rank ({place[0][1].rpartition('/')[2]})"


def _first_new(
    skeleton: Skeleton, whole: Numbers | str, plan: Plan, size: int, small: Callable[[], set[Place] | None]
) -> tuple[Place, str] | str:
    """The first place whose numbers differ on a rank but on no rank of the small instance, and the difference in words.

    Without such a place, the reason why the numbers could not be compared; empty if they agree.
    """
    if isinstance(whole, str):
        return whole
    for rank in _ranks_to_try(skeleton, plan, size):
        share = _numbers(skeleton, plan, size, rank)
        if isinstance(share, str):
            return f"rank {rank}: {share}"
        found = differences(whole, share)
        known = small() if found else None
        for place in sorted(found):
            if known is not None and _anywhere(place) not in known:
                one, other = found[place]
                return place, f"{one or 'no number'} in the whole model and {other or 'no number'}"
    return ""


def _ranks_to_try(skeleton: Skeleton, plan: Plan, size: int) -> list[int]:
    """The first rank, and the last rank if it has other shapes; all ranks would take a second each for 32 layers."""
    shapes: dict[tuple[torch.Size, ...], int] = {}
    for rank in dict.fromkeys((0, size - 1)):
        model = bare(skeleton, TYPES[0])
        apply(model, plan, OneOf(size, rank))
        shapes.setdefault(tuple(tensor.shape for tensor in (*model.parameters(), *model.buffers())), rank)
    return list(shapes.values())


def _known_of_model(model: Any, plan: Plan, ranks: int) -> set[Place] | None:
    try:
        small = small_instance(target_like(model), small_settings(model)).model
    except PlanError:
        return None
    return _known(small, plan, ranks)


def _known(small: torch.nn.Module, plan: Plan, ranks: int) -> set[Place] | None:
    """The places whose numbers differ between the small instance and its ranks; None if they cannot be compared."""
    skeleton, found = skeleton_of(small), set[Place]()
    whole = _numbers(skeleton, None, 1, 0)
    for rank in (0, ranks - 1):
        share = _numbers(skeleton, fitting(without_units(plan), small), ranks, rank)
        if isinstance(whole, str) or isinstance(share, str):
            return None
        found |= {_anywhere(place) for place in differences(whole, share)}
    return found


def _anywhere(place: Place) -> Place:
    """The same place in any layer."""
    return wildcard(place[0]), *place[1:]


def _numbers(skeleton: Skeleton, plan: Plan | None, size: int, rank: int) -> Numbers | str:
    """The numbers of a run without data, of the whole model or of a rank; or the reason why it fails."""
    why = ""
    for kind, place in itertools.product(TYPES, _PLACES):
        model = bare(skeleton, kind).eval()
        if getattr(model, "config", None) is None:
            return "a module without a configuration shows no inputs"
        try:
            if plan is not None:
                apply(model, plan, OneOf(size, rank))
            given = inputs_without_data(skeleton, kind)
            with place:
                return numbers_of(model, functools.partial(run_without_data, model, kwargs=given))
        except Exception as error:  # errors of the model's own code without data
            why = one_line(error)
    return f"no run without data: {why}"
