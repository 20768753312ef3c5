"""Compare the numbers that a rank's code computes from shapes with those of the whole model, at the model's own sizes.

Code may compute a number from a weight's shape that agrees on a small instance's ranks and differs on these, such as
``min(1.0, 1024 / weight.shape[0])``. Runs without data show it in every layer.
"""

from __future__ import annotations

import functools
import itertools
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from modular_converter.parallel.engine.base.skeleton import Skeleton, dismantle
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
# The devices for new tensors of the code: first with data, whose values are compared too, if the code runs so.
_CPU = torch.device("cpu")
# Parts that are left whole, one after the other, before a model is refused.
_MOST_PARTS = 8


def held_to_numbers(model: Any, plan: Plan, size: int, ranks: int, given: bool) -> tuple[Plan, str]:
    """The plan without the parts whose code computes other numbers from a rank's shapes, and a note on them for its
    origin.

    Numbers that also differ on the small instance's ranks were covered by the proof there.

    Args:
        size: the ranks of the model.
        ranks: those of the small instance that has proven the plan.
        given: whether the plan is the caller's, which stays as it is, with a warning.

    Raises ``ApplyError`` if such code stands in no part that can stay whole, or the rest of the plan does not hold
    without it.
    """
    skeleton, name = _skeleton(model), type(model).__name__
    whole = _numbers(skeleton, None, 1, 0)
    small = functools.cache(lambda: _known(_small(model), plan, ranks))
    parts: dict[str, str] = {}
    while not isinstance(place := _first_new(skeleton, whole, plan, size, small), str):
        said = _in_words(place)
        if given:
            logger.warning("%s: a given plan changes the model's numbers: %s: %s", name, place[0][0], said)
            break
        left = without_part_around(model, plan, place[0][0])
        if left is None or len(parts) == _MOST_PARTS:
            raise ApplyError(f"{name} cannot be shared out: {place[0][0] or 'the model'}: {said}")
        part, plan = left
        parts[part] = said
        logger.warning("%s: %s stays whole on each of %d ranks: %s", name, part, size, said)
    if parts:
        verdict = verified(target_like(model), small_settings(model), ranks, without_units(plan))
        if not verdict.passed:
            raise ApplyError(
                f"{name}: whole {', '.join(parts)} break the plan: {placed(verdict.layer, verdict.reason)}"
            )
    if place:
        said = f"numbers that its code computes from shapes could not be compared ({place})"
        level = logging.INFO if given else logging.WARNING  # the author of a given plan has to prove it
        logger.log(level, "%s: %s: compare an answer with that of one device", name, said)
        return plan, f"; {said}"
    return plan, f"; whole, as their code computes numbers from shapes: {', '.join(parts)}" if parts else ""


def with_numbers(verdict: Verdict, derived: Derived, plan: Plan, ranks: int) -> Verdict:
    """The verdict on a plan, refused if code makes other numbers of a rank's shapes at the default sizes of its classes.

    Where these cannot be compared, its scope says so.
    """
    if not verdict.passed:
        return verdict
    try:
        model = published(derived.target, dict(derived.overrides))
        skeleton = _skeleton(model)
        plan, whole = fit(skeleton, fitting(plan, model), ranks).plan, _numbers(skeleton, None, 1, 0)
    except Exception as error:  # classes whose defaults do not fit together, or a plan that shares out nothing there
        return _with_gap(verdict, one_line(error, 100))
    place = _first_new(skeleton, whole, plan, ranks, lambda: _known(derived.small.model, plan, ranks))
    if isinstance(place, str):
        return _with_gap(verdict, place) if place else verdict
    return refused(ranks, place[0][0], f"{_in_words(place)}, at the default sizes of its classes")


def derived_with_numbers(derived: Derived) -> Derived:
    """The same, with the layers whole whose code makes other numbers of a rank's shapes, if the rest of the plan holds."""
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
    said = f"numbers that code computes from shapes at the default sizes of its classes ({why})"
    return replace(verdict, evidence=verdict.evidence.with_gap(said))


def _in_words(place: tuple[Place, str]) -> str:
    return f"its code computes with {place[1]} on a rank ({place[0][1].rpartition('/')[2]})"


def _skeleton(model: torch.nn.Module) -> Skeleton:
    return dismantle(model, lambda name, tensor: tensor.dtype)[0]


def _first_new(
    skeleton: Skeleton, whole: Numbers | str, plan: Plan, size: int, small: Callable[[], set[Place] | None]
) -> tuple[Place, str] | str:
    """The first place whose numbers differ on a rank but on no rank of the small instance, and how, in words.

    Without such a place, the reason why the numbers could not be compared; empty if they were.
    """
    if isinstance(whole, str):
        return whole
    for rank in _unlike(skeleton, plan, size):
        share = _numbers(skeleton, plan, size, rank)
        if isinstance(share, str):
            return f"rank {rank}: {share}"
        found = differences(whole, share)
        known = small() if found else None
        for place in sorted(found):
            if known is not None and _anywhere(place) not in known:
                one, other = found[place]
                return place, f"{one or 'no number'} whole and with {other or 'no number'}"
    return ""


def _unlike(skeleton: Skeleton, plan: Plan, size: int) -> list[int]:
    """The first rank, and the last one where its shapes are others: a run of each takes a second for 32 layers."""
    shapes: dict[tuple[torch.Size, ...], int] = {}
    for rank in dict.fromkeys((0, size - 1)):
        model = bare(skeleton, TYPES[0])
        apply(model, plan, OneOf(size, rank))
        shapes.setdefault(tuple(one.shape for one in (*model.parameters(), *model.buffers())), rank)
    return list(shapes.values())


def _small(model: Any) -> torch.nn.Module | None:
    try:
        return small_instance(target_like(model), small_settings(model)).model
    except PlanError:
        return None


def _known(small: torch.nn.Module | None, plan: Plan, ranks: int) -> set[Place] | None:
    """The places whose numbers differ between the small instance and its ranks; None where it shows none."""
    if small is None:
        return None
    skeleton, found = _skeleton(small), set[Place]()
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
    """The numbers of one run without data, of the whole model or of a rank; or the reason why it fails."""
    why = ""
    for kind, place in itertools.product(TYPES, (_CPU, META)):
        model = bare(skeleton, kind).eval()
        if getattr(model, "config", None) is None:
            return "a module without a configuration shows no inputs"
        try:
            if plan is not None:
                apply(model, plan, OneOf(size, rank))
            given = inputs_without_data(model, kind)
            with place:
                return numbers_of(model, functools.partial(run_without_data, model, kwargs=given))
        except Exception as error:  # errors of the model's own code without data
            why = one_line(error)
    return f"no run without data: {why}"
