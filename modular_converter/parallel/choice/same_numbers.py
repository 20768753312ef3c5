"""Compare what the code computes from shapes, on a rank and in the whole model, at the model's own sizes.

A number such as ``min(1.0, 1024 / weight.shape[0])`` may be the same on the ranks of a small instance and differ on the
ranks of the model; so may a size, ``min(heads, 16)``, and the way that a branch goes, ``if heads > 16``. Trials show it
in every layer, at the usual length of inputs and at each that the numbers of the code name.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import torch

from modular_converter.parallel.choice.fit import (
    MORE_RANKS,
    UNEVEN_RANKS,
    fit,
    shares_members,
    untried,
    without_part_around,
)
from modular_converter.parallel.choice.skeleton import META, Skeleton, skeleton_of
from modular_converter.parallel.choice.small_instances import small_instance, small_settings, target_like, verified
from modular_converter.parallel.choice.trials import Trial, inputs_with_data, trials
from modular_converter.parallel.errors import ApplyError, PlanError, one_line
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import fitting
from modular_converter.parallel.plans.text_checks import placed, wildcard
from modular_converter.parallel.proof.judge import Verdict, refused
from modular_converter.parallel.proof.numbers import (
    LINE,
    Decided,
    Numbers,
    Place,
    Ratios,
    differences,
    numbers_in,
    numbers_of,
    shrunk,
)
from modular_converter.parallel.proof.prove import Derived
from modular_converter.parallel.shard.apply import apply
from modular_converter.parallel.shard.collectives import FakeGroup
from modular_converter.parallel.shard.shares import plan_for_ranks, without_units
from modular_converter.parallel.tiny.shrink import published
from modular_converter.parallel.tiny.uses import with_length
from modular_converter.parallel.trace.layer_kinds import beyond_numbers, other_length


logger = logging.getLogger(__name__)
# The devices for new tensors of the code: first with data, so that their values are compared too.
_PLACES = (torch.device("cpu"), META)
# The longest inputs of a trial.
_LONGEST, _MOST_LENGTHS = 1100, 3
# A model is refused after so many parts were left whole, one by one.
_MOST_PARTS = 8


def restricted_to_numbers(model: Any, plan: Plan, size: int, ranks: int, given: bool) -> tuple[Plan, str]:
    """The plan without the parts whose code computes other numbers from a rank's shapes, and a note for its origin.

    Numbers that also differ on the small instance's ranks are covered by its proof.

    Args:
        size: the ranks of the model.
        ranks: of the small instance that has proven the plan.
        given: whether the plan is the caller's; then it is unchanged, with a warning.

    Raises ``ApplyError`` if such code is in no part that can stay whole, the rest of the plan is wrong without the part, or
    no trial can run the model.
    """
    skeleton, name = skeleton_of(model), type(model).__name__
    compared = _Compared.of(skeleton, plan, model)
    small = _Shown(_runs_like(model, plan, ranks))
    parts: dict[str, str] = {}
    while not isinstance(place := compared.first_new(plan, size, small), str):
        difference = _in_words(place)
        if given:
            logger.warning("%s: a given plan changes the model's numbers: %s: %s", name, place[0][0], difference)
            break
        left = without_part_around(model, plan, place[0][0])
        if left is None or len(parts) == _MOST_PARTS:
            raise ApplyError(f"{name} cannot be sharded: {place[0][0] or 'the model'}: {difference}")
        part, plan = left
        parts[part] = difference
        logger.warning("%s: %s stays whole on each of %d ranks: %s", name, part, size, difference)
    if parts:
        verdict = verified(target_like(model), small_settings(model), ranks, without_units(plan))
        if not verdict.passed:
            raise ApplyError(
                f"{name}: the plan is wrong with {', '.join(parts)} whole: {placed(verdict.layer, verdict.reason)}"
            )
    if place and not given:
        raise ApplyError(untried(name, str(place)))
    if place:  # the author of a given plan has to prove it
        gap = f"numbers that its code computes from shapes could not be compared ({place})"
        logger.info("%s: %s: compare an answer with the answer of one device", name, gap)
        return plan, f"; {gap}"
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
        plan = fit(skeleton, fitting(plan, model), ranks).plan
        compared = _Compared.of(skeleton, plan)
    except Exception as error:  # defaults that do not fit together, or a plan that shards nothing at these sizes
        return _with_gap(verdict, one_line(error, 100))
    place = compared.first_new(plan, ranks, _Shown(_runs(derived.small.model, plan, ranks)))
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
    gap = f"numbers that code computes from shapes at the default sizes of the model's classes ({why})"
    return replace(verdict, evidence=verdict.evidence.with_gap(gap))


def _in_words(place: tuple[Place, str]) -> str:
    site = place[0][1].rpartition("/")[2]
    if place[0][2] == LINE:
        return f"its code runs a line {place[1]} on a rank ({site})"
    return f"its code computes {place[1]} on a rank ({site})"


class _Shown:
    """What a small instance shows, whole and on ranks, at places in any layer. Runs are made until they show what is asked.

    Args:
        runs: the numbers of a whole small model and of a rank, with the fractions of lengths that the rank holds.
    """

    def __init__(self, runs: Iterator[tuple[Numbers, Numbers, Ratios]]) -> None:
        self._runs = runs
        self._differing: set[Place] = set()
        # The results of comparisons that are the same, whole and on a rank.
        self._results: dict[Place, set[bool]] = {}

    def differs(self, place: Place) -> bool:
        """Whether a rank computes something else at this place, too, which the proof covers."""
        return self._until(lambda: _anywhere(place) in self._differing)

    def lacks(self, place: Place, result: bool) -> bool:
        """Whether a comparison has no such result here; code that does not run here has been proven elsewhere."""
        found = self._until(lambda: result in self._results.get(_anywhere(place), ()))
        return not found and _anywhere(place) in self._results

    def _until(self, shown: Callable[[], bool]) -> bool:
        while not shown():
            run = next(self._runs, None)
            if run is None:
                return False
            self._add(*run)
        return True

    def _add(self, whole: Numbers, share: Numbers, ratios: Ratios) -> None:
        self._differing.update(map(_anywhere, differences(whole, share, ratios)))
        for place in whole.keys() & share.keys():
            one, own = (
                {fact.holds for fact in facts if isinstance(fact, Decided)} for facts in (whole[place], share[place])
            )
            if one:
                self._results.setdefault(_anywhere(place), set()).update(one & own)


@dataclass(frozen=True)
class _Compared:
    """A whole model in the first trial that runs, to compare with its ranks.

    Attributes:
        trial: None if none runs.
        known: number of ids in an input, None for the usual number -> the whole model's numbers, or why there are none;
            empty before the run.
        why: the reason why no trial runs.
    """

    trial: Trial | None
    known: dict[int | None, Numbers | str]
    why: str = ""

    @staticmethod
    def of(skeleton: Skeleton, plan: Plan, model: Any = None) -> _Compared:
        """The numbers of a model, at the usual length of inputs and at the others that its numbers name."""
        why = ""
        for trial in trials(skeleton, plan, model):
            usual = _numbers(trial)
            if not isinstance(usual, str):
                known: dict[int | None, Numbers | str] = {None: usual}
                return _Compared(trial, known | dict.fromkeys(_lengths(trial, usual), ""))
            why = why or usual
        return _Compared(None, {}, why or "it is too large for a trial with data")

    def whole(self) -> Iterator[tuple[int | None, Numbers]]:
        """The numbers at each length; each run is made when it is asked for."""
        for length, known in self.known.items():
            if not known and self.trial is not None:
                self.known[length] = known = _numbers(self.trial, length=length)
            if not isinstance(known, str):  # the input may be too long
                yield length, known

    def first_new(self, plan: Plan, size: int, small: _Shown) -> tuple[Place, str] | str:
        """The first place that differs on a rank as on no rank of the small instance, and the difference in words.

        Without such a place, the reason why the numbers could not be compared; empty if they agree.
        """
        if self.trial is None:
            return self.why
        for rank, ratios in _ranks_to_try(self.trial, plan, size).items():
            for length, whole in self.whole():
                share = _numbers(self.trial, plan, size, rank, length)
                if isinstance(share, str):
                    return f"rank {rank}: {share}"
                for place, (one, other) in sorted(differences(whole, share, ratios).items()):
                    if not small.differs(place):
                        difference = f"{one or 'no number'} in the whole model and {other or 'no number'}"
                        return place, difference if length is None else f"{difference}, for {length} tokens,"
                both = sorted(whole.keys() & share.keys())
                for place, result in ((one, fact) for one in both for fact in shrunk(whole[one], share[one])):
                    if small.lacks(place, result.holds):
                        return place, f"{result}, which is so in no small instance, in the whole model and"
        return ""


def _ranks_to_try(trial: Trial, plan: Plan, size: int) -> dict[int, Ratios]:
    """The first rank, and the last rank if it has other shapes, with the fractions of lengths that they hold.

    All ranks would take a second each for 32 layers.
    """
    whole = trial.model()
    shapes = dict[tuple[torch.Size, ...], int]()
    result: dict[int, Ratios] = {}
    for rank in dict.fromkeys((0, size - 1)):
        model = trial.model()
        apply(model, fitting(plan, model), FakeGroup(size, rank))
        own = tuple(tensor.shape for tensor in (*model.parameters(), *model.buffers()))
        if shapes.setdefault(own, rank) == rank:
            result[rank] = _ratios(whole, model)
    return result


def _ratios(whole: torch.nn.Module, share: torch.nn.Module) -> Ratios:
    """The fractions of the lengths of weights, and of integers in attributes, that a rank holds."""
    pairs: set[tuple[int, int]] = set()
    for one, own in zip(whole.parameters(), share.parameters()):
        pairs.update(zip(one.shape, own.shape))
    for module, part in zip(whole.modules(), share.modules()):
        for name, value in vars(module).items():
            if type(value) is int and type(other := vars(part).get(name)) is int:
                pairs.add((value, other))
    return frozenset(Fraction(own, one) for one, own in pairs if one and own != one)


def _runs_like(model: Any, plan: Plan, ranks: int) -> Iterator[tuple[Numbers, Numbers, Ratios]]:
    """The runs of a small instance of the model; none if it has no small instance."""
    try:
        small = small_instance(target_like(model), small_settings(model)).model
    except PlanError:
        return
    yield from _runs(small, plan, ranks)


def _runs(small: torch.nn.Module, plan: Plan, ranks: int) -> Iterator[tuple[Numbers, Numbers, Ratios]]:
    """The runs of a small instance and its ranks, in the numbers of ranks of its proofs; none if they do not run."""
    compared = _Compared.of(skeleton_of(small), plan, small)
    if compared.trial is None:
        return
    uneven = MORE_RANKS if shares_members(plan) else UNEVEN_RANKS if any(rule.units for rule in plan.rules) else ranks
    for number in dict.fromkeys((ranks, uneven)):
        try:
            own = plan_for_ranks(fitting(without_units(plan), small), small, inputs_with_data(small), number)
            tried = _ranks_to_try(compared.trial, own, number)
        except ApplyError:  # a plan that the small instance refuses
            continue
        for rank, ratios in tried.items():
            for length, whole in compared.whole():
                share = _numbers(compared.trial, own, number, rank, length)
                if not isinstance(share, str):
                    yield whole, share, ratios


def _anywhere(place: Place) -> Place:
    """The same place in any layer."""
    return wildcard(place[0]), *place[1:]


def _lengths(trial: Trial, usual: Numbers) -> list[int]:
    """The other numbers of ids in an input at which the code does something else."""
    ids = trial.inputs().get("input_ids")
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2:
        return []
    length = ids.shape[1]
    decided = {fact for facts in usual.values() for fact in facts if isinstance(fact, Decided)}
    others = {other_length(fact.compared, length, _LONGEST) for fact in decided} - {None}
    found = sorted(other for other in others if other is not None)[:_MOST_LENGTHS]
    beyond = beyond_numbers(numbers_in(usual), max((length, *found)), _LONGEST)
    return [*found, *([] if beyond is None else [beyond])]


def _numbers(
    trial: Trial, plan: Plan | None = None, size: int = 1, rank: int = 0, length: int | None = None
) -> Numbers | str:
    """The numbers of a trial of the whole model, or of a rank; or the reason why it fails.

    Args:
        length: the number of ids in an input; None for the usual one.
    """
    why = ""
    for place in _PLACES:
        model = trial.model()
        if getattr(model, "config", None) is None:
            return "a module without a configuration shows no inputs"
        try:
            if plan is not None:
                apply(model, fitting(plan, model), FakeGroup(size, rank))
            given = trial.inputs()
            with place:
                run = functools.partial(trial.run_with, model, with_length(given, length) if length else given)
                return numbers_of(model, run, with_data=trial.filled is not None)
        except Exception as error:  # errors of the model's own code without data
            why = one_line(error)
    return f"no run without data: {why}"
