"""A layout with its options and batch, as a file that ``parallelize`` and ``examples/train.py`` run; and those to choose from."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from modular_converter.parallel.advice.candidates import LayoutForecast, Question, advise, forecasts_that_fit
from modular_converter.parallel.advice.memory import LayoutSetting
from modular_converter.parallel.advice.report import recommendation
from modular_converter.parallel.advice.subject import ModelInQuestion
from modular_converter.parallel.errors import AdviceError, ApplyError, one_line
from modular_converter.parallel.layout import Layout, Training


OPTIONS = ("recompute", "compile", "reshard", "offload", "sequence_parallel", "chunks", "schedule")
"""The options of ``Training`` that a choice has; types and losses are the caller's."""
_NEEDED = {
    "layout": 'the layout, such as "layout": "fsdp2"',
    "batch": 'the rows of a step over all data ranks, such as "batch": 8',
}
"""What a choice must have, and how it is written."""


@dataclass(frozen=True)
class ChosenLayout:
    """What to run.

    Attributes:
        accumulate: forwards of a step, each of a part of the rows; 1 with stages, which have ``chunks``.
        batch: rows of a step over all data ranks.
        length: tokens of a row; 0 for a model without tokens.
        sync_each_batch: whether data ranks sum up the gradients of each forward, and not of the last alone.
    """

    layout: Layout
    training: Training
    batch: int
    accumulate: int = 1
    length: int = 0
    sync_each_batch: bool = False

    @property
    def rows(self) -> int:
        """Of one forward of a data rank; with stages, of all its micro-batches."""
        return self.batch // self.layout.data // self.accumulate

    def options(self) -> dict[str, Any]:
        """The options that differ from those of ``Training()``."""
        usual = Training()
        found = {name: getattr(self.training, name) for name in OPTIONS}
        return {name: value for name, value in found.items() if value != getattr(usual, name)}

    def values(self) -> dict[str, Any]:
        """As plain values, from which ``chosen_of`` makes it again."""
        sizes: dict[str, Any] = {name: getattr(self, name) for name in ("batch", "accumulate", "length")}
        sizes |= {"sync_each_batch": True} if self.sync_each_batch else {}
        return {"layout": str(self.layout), "training": self.options(), **sizes}

    def __str__(self) -> str:
        options = [name if value is True else f"{name} {value}" for name, value in self.options().items()]
        options += [f"{self.accumulate} forwards"] * (self.accumulate > 1)
        options += ["sync_each_batch"] * self.sync_each_batch
        return f"{self.layout} ({', '.join(options)})" if options else str(self.layout)

    def beside(self, given: Training | None) -> Training:
        """The options of the choice with those that the caller has given.

        Raises ``ApplyError`` if the two differ in an option that both set.
        """
        usual, own = Training(), given or Training()
        more: dict[str, Any] = {}
        for name, value in self.options().items():
            other = getattr(own, name)
            if other not in (getattr(usual, name), value):
                raise ApplyError(f"training= has {name}={other!r}, and the choice {name}={value!r}: leave one out")
            more[name] = value
        return dataclasses.replace(own, **more)


def chosen_of(values: dict[str, Any], source: str) -> ChosenLayout:
    """The choice of plain values. Raises ``ApplyError`` that begins with ``source`` if they are none."""
    try:
        known = {one.name for one in dataclasses.fields(ChosenLayout)}
        unknown = sorted({*values} - known) + sorted({*values.get("training", {})} - {*OPTIONS})
        if unknown:
            raise ApplyError(f"unknown names {', '.join(unknown)}; known: {', '.join((*sorted(known), *OPTIONS))}")
        if missing := [name for name in _NEEDED if name not in values]:
            raise ApplyError(f"lacks {missing[0]}: write {_NEEDED[missing[0]]}")
        sizes = {name: values.get(name, default) for name, default in (("accumulate", 1), ("length", 0))}
        layout, training = Layout.parse(values["layout"]), Training(**values.get("training", {}))
        each = values.get("sync_each_batch", False)
        made = ChosenLayout(layout, training, values["batch"], **sizes, sync_each_batch=each)
        if type(each) is not bool:
            raise ApplyError("sync_each_batch is true or false")
        if any(type(one) is not int or one < 0 for one in (made.batch, made.accumulate, made.length)):
            raise ApplyError("batch, accumulate and length are whole numbers")
        if made.accumulate < 1 or made.rows < 1 or made.batch % (layout.data * made.accumulate):
            raise ApplyError(
                f"batch {made.batch} does not divide into {made.accumulate} forwards of {layout.data} ranks"
            )
    except (TypeError, AttributeError) as error:
        raise ApplyError(f"{source}: is no choice of a layout: {one_line(error)}") from error
    except ApplyError as error:
        raise ApplyError(f"{source}: {error}") from error
    return made


def read_chosen(path: str | os.PathLike[str]) -> ChosenLayout:
    """The choice of a file of JSON, in the form of ``ChosenLayout.values``. Raises ``ApplyError`` if it is none."""
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        raise ApplyError(f"{path}: cannot be read: {one_line(error)}") from error
    if not isinstance(values, dict):
        raise ApplyError(f"{path}: is no choice of a layout: not an object of JSON")
    return chosen_of({name: value for name, value in values.items() if name != "measured"}, str(path))


def chosen_setting(setting: LayoutSetting, length: int, compile: bool = False) -> ChosenLayout:
    """A setting of the advice as it is run."""
    staged: dict[str, Any] = {"chunks": setting.chunks, "schedule": setting.schedule} if setting.layout.pp > 1 else {}
    options = {name: getattr(setting, name) for name in ("recompute", "reshard", "offload", "sequence_parallel")}
    training = dataclasses.replace(Training(), **options, **staged, compile=compile)
    batch, each = setting.rows * setting.layout.data, setting.sync_each_batch
    return ChosenLayout(setting.layout, training, batch, setting.accumulate, length, each)


@dataclass(frozen=True)
class TrialCandidate:
    """A setting with its predicted seconds of a step, and bytes of a device."""

    chosen: ChosenLayout
    seconds: float
    memory: float

    def choices(self) -> dict[str, Any]:
        """What is decided, in the order in which it is: later choices depend on earlier ones."""
        sizes = {name: getattr(self.chosen, name) for name in ("batch", "accumulate", "sync_each_batch")}
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
        for one in forecasts_that_fit(subject, replace(question, batch=batch)):
            assert one.memory is not None and one.time is not None
            for compile in (False, True) if compiles and _may_compile(one) else (False,):
                chosen = chosen_setting(one.setting, subject.length, compile)
                found.append(TrialCandidate(chosen, one.time.seconds, one.memory.total))
    if not found:
        raise AdviceError(recommendation(advise(subject, question)))
    return sorted(found, key=lambda one: one.seconds / one.chosen.batch)


def _may_compile(one: LayoutForecast) -> bool:
    setting = one.setting
    shares = setting.layout.shares > 1
    return setting.layout.pp == 1 and not setting.sequence_parallel and not (setting.recompute and shares)


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
