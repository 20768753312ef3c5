"""A study with Optuna: this process owns it, and each trial runs in processes of its own."""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from modular_converter.parallel.errors import AdviceError, one_line
from modular_converter.parallel.tuning.chosen import ChoiceTree, TrialCandidate, candidate_of
from modular_converter.parallel.tuning.trial import TrialOutcome


TrialResult = tuple[TrialCandidate, TrialOutcome]


@dataclass(frozen=True)
class Objective:
    """What a study looks for.

    Attributes:
        figure: of those of a trial.
        predicted: what the advice says of a setting; less is better.
    """

    figure: str
    direction: str
    unit: str
    predicted: Callable[[TrialCandidate], float]

    def cost(self, outcome: TrialOutcome) -> float:
        """The figure of a trial; less is better."""
        return outcome.measured[self.figure] * (-1 if self.direction == "maximize" else 1)


OBJECTIVES = {
    "tokens": Objective("tokens_a_second", "maximize", "tokens a second", lambda one: one.seconds / one.chosen.batch),
    "memory": Objective("memory", "minimize", "bytes a device", lambda one: one.memory),
    "latency": Objective("seconds", "minimize", "seconds a step", lambda one: one.seconds),
}
PRIOR = 0.5
"""The part of the trials that take what the advice has as the best, in its order."""
KILLED = 2
"""Times that the study was killed in a trial, after which the trial counts as failed."""
AGAIN = 20
"""Proposals of settings that have run already, after which the next of the advice is taken."""


@contextlib.contextmanager
def owned_storage(path: Path | None) -> Iterator[Any]:
    """The storage of a study, which no other process may use meanwhile; in memory if None."""
    import optuna

    if path is None:
        yield optuna.storages.InMemoryStorage()
        return

    with contextlib.ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(path.with_name(f"{path.name}.lock").open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise AdviceError(f"{path}: another process owns this study: wait for its end") from error
        except OSError as error:
            raise AdviceError(f"{path}: cannot be written: {one_line(error)}") from error
        try:
            storage = optuna.storages.RDBStorage(f"sqlite:///{path.resolve()}")
        except Exception as error:  # of the database's own kinds
            raise AdviceError(f"{path}: is no storage of Optuna: {one_line(error)}") from error
        yield storage


class TimeEndedError(Exception):
    """The time of a study has ended within a trial."""


class LayoutStudy:
    """The trials so far, and the next one.

    A storage keeps the settings of its study, too, since what fits depends on the memory that is free when they are found.

    Args:
        candidates: makes the settings of a new study.
        question: what is asked, in words; a storage with a study of another question is refused.
    """

    def __init__(
        self,
        storage: Any,
        candidates: Callable[[], Sequence[TrialCandidate]],
        objectives: Sequence[str],
        question: str,
        seed: int = 0,
    ) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.states, self.objectives = optuna.trial.TrialState, tuple(objectives)
        # Its starting trials are those of the advice.
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=1)
        directions = [OBJECTIVES[name].direction for name in objectives]
        asked = f"{question}, for {', '.join(objectives)}"
        if "modular-plan" not in optuna.get_all_study_names(storage):
            found = candidates()
            self.study = optuna.create_study(
                storage=storage, study_name="modular-plan", directions=directions, sampler=sampler
            )
            self.study.set_user_attr("candidates", [one.plain() for one in found])
            self.study.set_user_attr("asked", asked)
        self.study = optuna.load_study(storage=storage, study_name="modular-plan", sampler=sampler)
        known = self.study.user_attrs.get("asked", "nothing, since its first run was killed: remove the file")
        if known != asked:
            raise AdviceError(f"the storage holds a study of {known}")
        self.candidates = [candidate_of(one) for one in self.study.user_attrs["candidates"]]
        self.tree = ChoiceTree(self.candidates)
        self._end_those_that_were_killed()

    def _end_those_that_were_killed(self) -> None:
        """A trial that still runs belonged to an owner that is gone: it is tried again, once."""
        for one in self.study.get_trials(states=[self.states.RUNNING]):
            if "outcome" in one.user_attrs:
                self._tell(one.number, TrialOutcome(*one.user_attrs["outcome"]))
                continue
            self.study.tell(one.number, state=self.states.FAIL)
            key = _key_of(one.user_attrs.get("values", {}))
            if key not in {_key(ended) for ended, _ in self.results()}:
                for again in (other for other in self.candidates if _key(other) == key):
                    self._enqueue(again)

    def _enqueue(self, one: TrialCandidate) -> None:
        self.study.enqueue_trial(self.tree.parameters(one))

    def run(self, trials: int, measure: Callable[[TrialCandidate], TrialOutcome], say: Callable[[str], None]) -> int:
        """Run trials until there are so many settings, all have run, or ``measure`` raises ``TimeEndedError``.

        Returns:
            The number of trials that are left.
        """
        done = {_key(one): outcome for one, outcome in self.results()}
        trials, repeats = min(trials, len(self.candidates)), 0
        if not self.study.get_trials(states=[self.states.WAITING]):
            for one in self._first(math.ceil(trials * PRIOR)):
                if _key(one) not in done:
                    self._enqueue(one)
        while len(done) < trials:
            if repeats >= AGAIN:
                self._enqueue(next(one for one in self.candidates if _key(one) not in done))
            trial = self.study.ask()
            one = self.tree.suggested(trial)
            trial.set_user_attr("values", one.chosen.values())
            if _key(one) in done:
                repeats += 1
                trial.set_user_attr("repeated", True)
                self._tell(trial, done[_key(one)])
                continue
            repeats = 0
            try:
                outcome = measure(one)
            except TimeEndedError:
                trial.set_user_attr("repeated", True)
                self.study.tell(trial, state=self.states.FAIL)
                break
            except Exception as error:  # a trial never ends the study
                outcome = TrialOutcome("failed", one_line(error), {})
            done[_key(one)] = outcome
            trial.set_user_attr("outcome", [outcome.kind, outcome.why, outcome.measured])
            self._tell(trial, outcome)
            say(f"{len(done)}/{trials} {one.chosen}, batch {one.chosen.batch}: {in_words(outcome)}")
        return max(trials - len(done), 0)

    def _first(self, number: int) -> list[TrialCandidate]:
        """The settings that the advice has as the best, in turn for each objective."""
        orders = [sorted(self.candidates, key=OBJECTIVES[name].predicted) for name in self.objectives]
        in_turn = {_key(one): one for several in zip(*orders) for one in several}
        return list(in_turn.values())[:number]

    def _tell(self, trial: Any, outcome: TrialOutcome) -> None:
        if outcome.kind:
            self.study.tell(trial, state=self.states.FAIL)
        else:
            self.study.tell(trial, [outcome.measured[OBJECTIVES[name].figure] for name in self.objectives])

    def results(self) -> list[TrialResult]:
        """The settings that have run, with what became of them, in order."""
        by_values = {_key(one): one for one in self.candidates}
        found: list[TrialResult] = []
        killed = Counter[str]()
        for trial in self.study.get_trials(states=[self.states.COMPLETE, self.states.FAIL]):
            values, outcome = trial.user_attrs.get("values"), trial.user_attrs.get("outcome")
            if values is None or trial.user_attrs.get("repeated"):
                continue
            key = _key_of(values)
            killed[key] += outcome is None
            if outcome is not None or killed[key] == KILLED:
                outcome = outcome or ("failed", "the study was killed in this trial, and again", {})
                found.append((by_values[key], TrialOutcome(*outcome)))
        return found

    def front(self) -> list[TrialResult]:
        """The settings that no other one beats in all objectives, the best in the first one first."""
        ran = [one for one in self.results() if not one[1].kind]
        costs = [[OBJECTIVES[name].cost(outcome) for name in self.objectives] for _, outcome in ran]
        return [ran[number] for number in pareto_front(costs)]


def _key(one: TrialCandidate) -> str:
    return _key_of(one.chosen.values())


def _key_of(values: dict[str, Any]) -> str:
    return json.dumps(values, sort_keys=True)


def in_words(outcome: TrialOutcome) -> str:
    """A trial in a line."""
    if outcome.kind:
        return f"{outcome.kind}: {outcome.why}"
    found = outcome.measured
    return (
        f"{found['tokens_a_second']:.4g} tokens/s, a step {found['seconds']:.4g} s ± {found['interval']:.2g}, "
        f"{found['memory'] / 2**20:.0f} MiB"
    )


WIDTH, HEIGHT, EDGE = 640, 400, 60


def pareto_front(costs: Sequence[Sequence[float]]) -> list[int]:
    """The places of the costs that no other ones beat: less or equal in all, and not the same. The least first cost first."""
    best = [
        (list(own), number)
        for number, own in enumerate(costs)
        if not any(list(other) != list(own) and all(a <= b for a, b in zip(other, own)) for other in costs)
    ]
    return [number for _, number in sorted(best)]


class PlotPoint(NamedTuple):
    """A point of a picture; the best are joined by a line, and have their label beside them."""

    x: float
    y: float
    label: str
    title: str
    best: bool


def front_svg(points: Sequence[PlotPoint], axes: tuple[str, str]) -> str:
    """An SVG of all points, with the front as a line; empty without a point.

    Args:
        axes: what the two figures are, with their units.
    """
    if not points:
        return ""
    low, high = ((f(one.x for one in points), f(one.y for one in points)) for f in (min, max))

    def at(*figures: float) -> tuple[float, float]:
        shares = [(v - a) / (b - a) if b > a else 0.5 for v, a, b in zip(figures, low, high)]
        return EDGE + shares[0] * (WIDTH - 2 * EDGE), HEIGHT - EDGE - shares[1] * (HEIGHT - 2 * EDGE)

    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in sorted(at(one.x, one.y) for one in points if one.best))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            f'<path d="M{EDGE} {EDGE / 2} V{HEIGHT - EDGE} H{WIDTH - EDGE / 2}" fill="none" stroke="#888"/>',
            f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">{escape(axes[0])}</text>',
            f'<text transform="translate(16 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(axes[1])}</text>',
            *(
                f'<text x="{at(v, low[1])[0]:.1f}" y="{HEIGHT - EDGE + 18}" text-anchor="middle">{v:.4g}</text>'
                for v in sorted({low[0], high[0]})
            ),
            *(
                f'<text x="{EDGE - 6}" y="{at(low[0], v)[1] + 4:.1f}" text-anchor="end">{v:.4g}</text>'
                for v in sorted({low[1], high[1]})
            ),
            f'<polyline points="{line}" fill="none" stroke="#c33" stroke-width="1.5"/>',
            *(_dot(*at(one.x, one.y), one) for one in points),
            "</svg>\n",
        ]
    )


def _dot(x: float, y: float, point: PlotPoint) -> str:
    color = "#c33" if point.best else "#99a"
    label = f'<text x="{x + 8:.1f}" y="{y - 6:.1f}">{escape(point.label)}</text>' if point.best else ""
    title = f"<title>{escape(point.title)}</title>"
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{5 if point.best else 4}" fill="{color}">{title}</circle>{label}'


def result_table(results: Sequence[TrialResult], front: Sequence[TrialResult]) -> tuple[list[str], list[list[str]]]:
    """The settings of the front, then the others, then those that failed, and why."""
    ran = [one for one in results if not one[1].kind and one not in front]
    ran.sort(key=lambda one: one[1].measured["seconds"] / one[0].chosen.batch)
    failed = [one for one in results if one[1].kind]
    head = ["setting", "batch", "tokens/s", "a step", "memory", ""]
    rows = [_row(one, "best" if one in front else "") for one in (*front, *ran)]
    return head, rows + [
        [str(c.chosen), str(c.chosen.batch), "", "", "", f"{o.kind}: {o.why}"[:90]] for c, o in failed
    ]


def _row(one: TrialResult, mark: str) -> list[str]:
    chosen, found = one[0].chosen, one[1].measured
    step = f"{found['seconds']:.4g} s ± {found['interval']:.2g}"
    return [
        str(chosen),
        str(chosen.batch),
        f"{found['tokens_a_second']:.4g}",
        step,
        f"{found['memory'] / 2**20:.0f} MiB",
        mark,
    ]


def front_picture(results: Sequence[TrialResult], front: Sequence[TrialResult], objectives: Sequence[str]) -> str:
    """An SVG of the first two objectives (of one, with memory): a point for each setting, the front as a line."""
    first, second = [*objectives, *(name for name in ("memory", "tokens") if name not in objectives)][:2]
    points = [
        PlotPoint(
            one[1].measured[OBJECTIVES[first].figure],
            one[1].measured[OBJECTIVES[second].figure],
            str(one[0].chosen),
            f"{one[0].chosen}, batch {one[0].chosen.batch}",
            one in front,
        )
        for one in results
        if not one[1].kind
    ]
    return front_svg(points, (OBJECTIVES[first].unit, OBJECTIVES[second].unit))
