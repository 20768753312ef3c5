"""The settings that a study may try: what the advice excludes is not among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from modular_converter.parallel.advice.candidates import LayoutForecast, Question, advise, forecasts_that_fit
from modular_converter.parallel.advice.report import recommendation
from modular_converter.parallel.advice.subject import ModelInQuestion
from modular_converter.parallel.errors import AdviceError
from modular_converter.parallel.tuning.chosen import OPTIONS, ChosenLayout, chosen_of, chosen_setting


MOST_FORWARDS = 8


@dataclass(frozen=True)
class TrialCandidate:
    """A setting with its predicted seconds of a step, and bytes of a device."""

    chosen: ChosenLayout
    seconds: float
    memory: float

    def choices(self) -> dict[str, Any]:
        """What is decided, in the order in which it is: later choices depend on earlier ones."""
        sizes = {"batch": self.chosen.batch, "accumulate": self.chosen.accumulate}
        options = {name: getattr(self.chosen.training, name) for name in OPTIONS}
        return {"layout": str(self.chosen.layout), **sizes, **options}

    def plain(self) -> list[Any]:
        """As plain values, from which ``candidate_of`` makes it again."""
        return [self.chosen.values(), self.seconds, self.memory]


def candidate_of(plain: Sequence[Any]) -> TrialCandidate:
    """The candidate of its plain values."""
    return TrialCandidate(chosen_of(plain[0], "the study"), plain[1], plain[2])


def candidates_of(
    subject: ModelInQuestion, question: Question, batches: Sequence[int], compiles: bool
) -> list[TrialCandidate]:
    """All settings that fit, with the fastest rows first as predicted. Raises ``AdviceError`` if there is none.

    Args:
        batches: rows of a step over all data ranks.
        compiles: whether layers may be compiled; then each setting that allows it is there twice.
    """
    found: list[TrialCandidate] = []
    for batch in batches:
        for forwards in range(1, MOST_FORWARDS + 1):
            if batch % forwards:
                continue
            for one in forecasts_that_fit(subject, replace(question, batch=batch // forwards)):
                for compile in (False, True) if compiles and _may_compile(one) else (False,):
                    found += _accumulated(one, subject.length, forwards, compile, question.cluster.device.memory)
    if not found:
        raise AdviceError(recommendation(advise(subject, question)))
    return sorted(found, key=lambda one: one.seconds / one.chosen.batch)


def _may_compile(one: LayoutForecast) -> bool:
    return one.setting.layout.pp == 1 and not (one.setting.recompute and one.setting.layout.shares > 1)


def _accumulated(one: LayoutForecast, length: int, forwards: int, compile: bool, most: float) -> list[TrialCandidate]:
    """The setting with so many forwards a step, if it fits. Stages have micro-batches instead.

    The gradients of earlier forwards are there in later ones, and are not divided over data ranks before the last.
    """
    layout = one.setting.layout
    if forwards > 1 and (layout.pp > 1 or one.setting.offload):
        return []
    assert one.memory is not None and one.time is not None
    memory = one.memory.total + (one.memory.gradients * layout.dp_shard if forwards > 1 else 0.0)
    chosen = chosen_setting(one.setting, length, forwards, compile)
    return [TrialCandidate(chosen, one.time.seconds * forwards, memory)] if memory <= most else []


class ChoiceTree:
    """Candidates as choices one after the other. A choice of which one value is possible is none."""

    def __init__(self, candidates: Sequence[TrialCandidate]) -> None:
        self.candidates = candidates

    def parameters(self, one: TrialCandidate) -> dict[str, Any]:
        """Name -> value of the choices that lead to a candidate."""
        wanted, found = one.choices(), dict[str, Any]()

        def take(parameter: str, name: str, values: list[Any]) -> Any:
            if len(values) > 1:
                found[parameter] = wanted[name]
            return wanted[name]

        self._follow(take)
        return found

    def suggested(self, trial: Any) -> TrialCandidate:
        """The candidate whose choices a trial of Optuna makes."""

        def take(parameter: str, name: str, values: list[Any]) -> Any:
            return trial.suggest_categorical(parameter, values) if len(values) > 1 else values[0]

        return self._follow(take)

    def _follow(self, take: Any) -> TrialCandidate:
        """Go from choice to choice; ``take`` has the parameter's name, that of the choice, and its possible values."""
        left, path = list(self.candidates), ""
        for name in left[0].choices():
            value = take(path + name, name, list(dict.fromkeys(one.choices()[name] for one in left)))
            path += f"{name}={value} "
            left = [one for one in left if one.choices()[name] == value]
        return left[0]
