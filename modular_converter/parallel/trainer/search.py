"""A search for hyper-parameters with Optuna on several processes: the first one owns the study, and all draw its trials."""

from __future__ import annotations

import itertools
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import optuna
import torch.distributed as dist
from transformers.trainer_utils import BestRun

from modular_converter.parallel.engine.group.same_calls import from_first_process, refuse_other_options
from modular_converter.parallel.errors import ApplyError, one_line
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.torch_private import default_store
from modular_converter.parallel.tuning.study import PlotPoint, front_svg, pareto_front


COMPLETE, PRUNED, FAILED = "complete", "pruned", "failed"
ALONE_S = 60.0
"""Seconds after which a process that has left a trial, as others have not, ends with an error: they may be in a collective."""
TOGETHER_S = 1800.0
"""Seconds that a process at the end of a trial waits for the others, as long as a collective of torch waits."""
_NUMBERS = itertools.count()


class SharedTrial(optuna.trial.FixedTrial):  # type: ignore[misc]
    """A trial of Optuna that all processes draw: the first one asks Optuna, and the others get its answers.

    All processes must make the same calls, which is checked.
    """

    def __init__(self, trial: Any, number: int, several: bool) -> None:
        self._trial, self._drawn = trial, dict[str, Any]()
        super().__init__(self._drawn, number)
        self.study = types.SimpleNamespace(_is_multi_objective=lambda: several)  # what `Trainer` asks of it

    def suggest_float(
        self, name: str, low: float, high: float, *, step: float | None = None, log: bool = False
    ) -> float:
        """As Optuna's."""
        self._draw("suggest_float", name, low, high, step=step, log=log)
        return float(super().suggest_float(name, low, high, step=step, log=log))

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        """As Optuna's."""
        self._draw("suggest_int", name, low, high, step=step, log=log)
        return int(super().suggest_int(name, low, high, step=step, log=log))

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        """As Optuna's."""
        self._draw("suggest_categorical", name, list(choices))
        return super().suggest_categorical(name, choices)

    def report(self, value: float, step: int) -> None:
        """Tell a pruner the first process's figure at a step."""
        self._ask("report", float(value), step)

    def should_prune(self) -> bool:
        """Whether a pruner of Optuna stops the trial, the same on all processes."""
        return bool(self._ask("should_prune"))

    def set_user_attr(self, key: str, value: Any) -> None:
        """Keep the first process's value with the trial in the study."""
        super().set_user_attr(key, value)
        self._ask("set_user_attr", key, value)

    def _draw(self, method: str, name: str, *given: Any, **more: Any) -> None:
        refuse_other_options(f"{method}{(name, *given)} {more}")
        self._drawn[name] = self._ask(method, name, *given, **more)

    def _ask(self, method: str, *given: Any, **more: Any) -> Any:
        return from_first_process(lambda: getattr(self._trial, method)(*given, **more), ProcessGroup())


@dataclass(frozen=True)
class SearchTrial:
    """A trial that has ended.

    Attributes:
        values: of the objectives, in their order; of a pruned trial the last that was reported, if any.
        state: ``complete``, ``pruned`` or ``failed``.
        why: of a failed trial.
    """

    number: int
    params: dict[str, Any]
    values: tuple[float, ...]
    state: str
    why: str = ""

    def __str__(self) -> str:
        return ", ".join(
            f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in self.params.items()
        )


@dataclass(frozen=True)
class SearchSummary:
    """All trials of a study that have ended, in order, also those of an earlier run with the same storage."""

    directions: tuple[str, ...]
    trials: tuple[SearchTrial, ...]

    def front(self) -> list[SearchTrial]:
        """The trials that no other one beats in all objectives, the best in the first one first."""
        ran = [one for one in self.trials if one.state == COMPLETE]
        signs = [-1.0 if one == "maximize" else 1.0 for one in self.directions]
        return [ran[n] for n in pareto_front([[s * v for s, v in zip(signs, one.values)] for one in ran])]

    def table(self, names: Sequence[str]) -> tuple[list[str], list[list[str]]]:
        """A head with the objectives' names, and a row for each trial: the front, then the others."""
        front = self.front()
        rows = [
            [str(one.number), *(f"{value:.5g}" for value in one.values), str(one), "best" if one in front else one.why]
            for one in (*front, *(one for one in self.trials if one.state == COMPLETE and one not in front))
        ]
        rows += [
            [str(one.number), *[""] * len(names), str(one), f"{one.state}{f': {one.why}' if one.why else ''}"]
            for one in self.trials
            if one.state != COMPLETE
        ]
        return ["trial", *names, "", ""], rows

    def picture(self, names: Sequence[str]) -> str:
        """An SVG of the first two objectives, with the front as a line; of a single one, by trial."""
        several = len(names) > 1
        front = self.front() if several else self.front()[:1]
        points = []
        for one in self.trials:
            if one.state == COMPLETE:
                x, y = one.values[:2] if several else (one.number, one.values[0])
                points.append(PlotPoint(x, y, str(one), f"trial {one.number}: {one}", one in front))
        return front_svg(points, (names[0], names[1]) if several else ("trial", names[0]))


def best_runs(summary: SearchSummary) -> BestRun | list[BestRun]:
    """The best trial as transformers has it; with several objectives, the front.

    Raises ``ApplyError`` if no trial was completed.
    """
    front = summary.front()
    if not front:
        states = [one.state for one in summary.trials]
        why = next((f"; the last failed with {one.why}" for one in reversed(summary.trials) if one.why), "")
        raise ApplyError(
            f"no trial was completed: {states.count(PRUNED)} were pruned, and {states.count(FAILED)} failed{why}"
        )
    several = len(summary.directions) > 1
    runs = [
        BestRun(str(one.number), list(one.values) if several else one.values[0], one.params, summary) for one in front
    ]
    return runs if several else runs[0]


def search_with_optuna(
    run: Callable[[SharedTrial], Any], trials: int | None, direction: str | Sequence[str], options: dict[str, Any]
) -> SearchSummary:
    """Run trials on all processes, which must all call this.

    Args:
        run: gives the objective of a trial, or several; the first process's count.
        options: of ``optuna.create_study``, with ``timeout`` and ``catch``.

    Raises ``ApplyError`` on all processes for a study that cannot be made or used, and the error of a trial that is not
    among ``catch``.
    """
    left = dict(options)
    timeout, catch, jobs = left.pop("timeout", None), left.pop("catch", ()), left.pop("n_jobs", 1)
    if jobs != 1:
        raise ApplyError(f"n_jobs={jobs}: all processes run one trial together: leave it out")
    if trials is None and timeout is None:
        raise ApplyError("n_trials=None: the search has no end: give n_trials= or timeout=")
    directions = (direction,) if isinstance(direction, str) else tuple(direction)
    owner = _Owner(directions, left, trials, timeout)
    everyone = ProcessGroup()
    from_first_process(owner.create, everyone)
    while number := from_first_process(owner.next_trial, everyone):
        shared = SharedTrial(owner.trial, number[0], len(directions) > 1)
        state, why, values = _ended(run, shared, catch if isinstance(catch, tuple) else (catch,))
        agreed = _state_of_all(state, everyone)
        from_first_process(lambda: owner.tell(agreed, why, values), everyone)  # noqa: B023
    return SearchSummary(directions, from_first_process(owner.ended, everyone))


class _Owner:
    """The study, which only the first process has; its methods run there alone."""

    def __init__(
        self, directions: Sequence[str], options: dict[str, Any], trials: int | None, timeout: float | None
    ) -> None:
        self.directions, self.options, self.left = directions, options, trials
        self.end = None if timeout is None else time.monotonic() + timeout
        self.study: Any = None
        self.trial: Any = None

    def create(self) -> None:
        self.study = optuna.create_study(directions=list(self.directions), **self.options)
        kept = tuple(one.name.lower() for one in self.study.directions)
        if kept != tuple(self.directions):
            raise ApplyError(
                f"the storage holds a study {self.study.study_name!r} with direction={list(kept)}: give this search another "
                "study_name="
            )

    def next_trial(self) -> tuple[int, ...]:
        """The number of the next trial; nothing at the end."""
        if self.left == 0 or self.end is not None and time.monotonic() >= self.end:
            return ()
        self.left = None if self.left is None else self.left - 1
        self.trial = self.study.ask()
        return (self.trial.number,)

    def tell(self, state: str, why: str, values: Any) -> None:
        if state == COMPLETE:
            figures = [float(one) for one in (values if isinstance(values, (list, tuple)) else [values])]
            if len(figures) != len(self.directions):
                raise ApplyError(
                    f"compute_objective gives {len(figures)} figures, and direction= has {len(self.directions)}: give as many"
                )
            self.study.tell(self.trial, figures)  # fails the trial if one is not a number
        else:
            if state == FAILED:
                self.trial.set_user_attr("why", why or "another process failed")
            self.study.tell(self.trial, state=optuna.trial.TrialState.PRUNED if state == PRUNED else _FAIL)

    def ended(self) -> tuple[SearchTrial, ...]:
        """All trials that have ended."""
        return tuple(
            SearchTrial(
                one.number,
                dict(one.params),
                tuple(one.values or ()),
                _STATES[one.state],
                one.user_attrs.get("why", "an objective that is no number") if one.state == _FAIL else "",
            )
            for one in self.study.get_trials(states=tuple(_STATES))
        )


_FAIL = optuna.trial.TrialState.FAIL
_STATES = {optuna.trial.TrialState.COMPLETE: COMPLETE, optuna.trial.TrialState.PRUNED: PRUNED, _FAIL: FAILED}


def _ended(run: Callable[[SharedTrial], Any], trial: SharedTrial, catch: tuple[Any, ...]) -> tuple[str, str, Any]:
    """How a trial ends on this process, why if it failed, and its figures if it did not."""
    try:
        return COMPLETE, "", run(trial)
    except optuna.TrialPruned:
        return PRUNED, "", None
    except catch as error:
        return FAILED, one_line(error), None


def _state_of_all(state: str, everyone: ProcessGroup) -> str:
    """The worst state of all processes.

    They meet at the store, not in a collective: if one has left a trial alone, the others wait for it in another collective.

    Raises ``ApplyError`` on a process that others do not follow out of a trial.
    """
    store, meeting = default_store(), f"modular_converter/search/{next(_NUMBERS)}"
    keys = [f"{meeting}/{rank}" for rank in range(everyone.size)]
    store.set(keys[everyone.rank], state)
    try:
        store.wait(keys, timedelta(seconds=TOGETHER_S if state == COMPLETE else ALONE_S))
    except dist.DistError as error:
        missing = [rank for rank, key in enumerate(keys) if not store.check([key])]
        raise ApplyError(
            f"the trial is {state} on process {everyone.rank}, and processes {missing} did not end it: what ends a trial "
            "must end it on all processes"
        ) from error
    found = {store.get(key).decode() for key in keys}
    return next(one for one in (FAILED, PRUNED, COMPLETE) if one in found)
