"""Hyper-parameters on two processes: they draw the same trials, leave them together, and find what training by hand finds."""

from __future__ import annotations

import json
import math
import re
import shlex
from dataclasses import replace
from xml.etree import ElementTree

import pytest


pytest.importorskip("transformers")
pytest.importorskip("optuna")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from optuna import TrialPruned, pruners, samplers, storages  # noqa: E402

from modular_converter.parallel.errors import ApplyError  # noqa: E402
from modular_converter.parallel.trainer.search import (  # noqa: E402
    SearchSummary,
    SearchTrial,
    best_runs,
    search_with_optuna,
)
from modular_converter.parallel.tuning.study import pareto_front  # noqa: E402
from tests.parallel.launch import ROOT, launch, line_of  # noqa: E402


SCRIPT = "tests/parallel/search_script.py"
CIRCLE = "{http://www.w3.org/2000/svg}circle"


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["fsdp2", "tp2"])
def test_both_processes_draw_the_same_trials_and_leave_pruned_ones_together(tmp_path, layout):
    found = line_of(2, SCRIPT, "one", layout, tmp_path)["found"]
    first, second = found["drawn"]
    assert first == second and [number for number, _ in first][::2] == [0, 1, 2, 3]  # each space is asked twice
    assert [(number, state) for number, state, _ in found["states"]] == [
        (0, "complete"),
        (1, "pruned"),
        (2, "complete"),
        (3, "pruned"),
    ]
    assert all(drawn.items() <= params.items() for (_, drawn), (_, _, params) in zip(first[::2], found["states"]))
    assert found["best"][0] == found["best"][1] and found["best"][0][1] == min(found["values"])
    assert math.isclose(found["again"], found["best"][0][1], rel_tol=1e-6)
    assert found["own arguments"] == [5e-5, 8]
    assert set(found["models there"]) == {0}  # when a model is made, the one before is gone
    assert found["trials in the end"] == 5
    assert len(ElementTree.fromstring(found["picture"]).findall(CIRCLE)) == 2


@pytest.mark.slow
def test_several_objectives_give_the_front_on_both_processes(tmp_path):
    found = line_of(2, SCRIPT, "several", "fsdp2", tmp_path)["found"]
    assert found["best"][0] == found["best"][1] and len(found["values"]) == 5  # none of which is pruned
    best = {
        number
        for number, (loss, rows) in enumerate(found["values"])
        if not any((a, -b) != (loss, -rows) and a <= loss and b >= rows for a, b in found["values"])
    }
    assert {int(run) for run, _ in found["best"][0]} == best
    circles = ElementTree.fromstring(found["picture"]).findall(CIRCLE)
    assert len(circles) == 5 and sum(one.get("fill") == "#c33" for one in circles) == len(best)
    head, rows = found["table"]
    assert head == ["trial", "loss", "rows", "", ""] and [row[-1] == "best" for row in rows].count(True) == len(best)


@pytest.mark.slow
def test_a_failed_trial_fails_on_both_processes_and_what_cannot_run_is_refused(tmp_path):
    found = line_of(2, SCRIPT, "troubled", "fsdp2", tmp_path)["found"]
    assert [state for state, _ in found["states"]] == ["failed", "failed", "complete"]
    assert [why for _, why in found["states"]] == ["ValueError: of the space", "another process failed", ""]
    assert found["best"] == ["2", "2"]
    reasons = {
        "other space": "process 1 was given suggest_float('learning_rate', 0.0001, 0.2)",
        "unknown": "hp_space gives lr, which TrainingArguments do not have",
        "figures": "compute_objective gives 1 figures, and direction= has 2",
        "directions": "the storage holds a study 'own' with direction=['minimize', 'maximize']",
        "storage": "nowhere",
        "ray": "backend='ray' starts trials of its own",
        "endless": "n_trials=None: the search has no end",
        "jobs": "n_jobs=2: all processes run one trial together",
        "all pruned": "no trial was completed: 1 were pruned, and 0 failed",
        "no model_init": "hyperparameter_search needs a new model for each trial",
    }
    for case, reason in reasons.items():
        assert found[case].startswith("ApplyError: ") and reason in found[case], found[case]


@pytest.mark.slow
def test_a_process_that_leaves_a_trial_alone_ends_the_run(tmp_path):
    ended = launch(2, SCRIPT, "alone", "fsdp2", tmp_path, limit_s=300.0)
    assert ended.code == 1
    assert "the trial is pruned on process 1, and processes [0] did not end it" in ended.errors


def test_the_command_of_the_page_runs(tmp_path):
    page = (ROOT / "docs/train/trainer.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^torchrun --nproc-per-node 2 (examples/search.py .*)$", page, re.MULTILINE)
    script, *arguments = shlex.split(line)
    (tmp_path / "text.txt").write_text("to be or not to be, that is the question. " * 40)
    places = {"text.txt": tmp_path / "text.txt", "front.svg": tmp_path / "front.svg", "12": "3"}
    small = ["--steps", 4, "--length", 16, "--settings", "n_layer=2", "n_embd=32", "n_head=2"]
    kept = [
        "--cpu",
        "--output",
        tmp_path / "best.json",
        "--folder",
        tmp_path / "run",
        "--storage",
        tmp_path / "own.db",
    ]
    given = [places.get(one, one) for one in arguments]
    assert (done := launch(2, script, *given, *kept, *small)).code == 0, done.errors[-3000:]
    head, *rows = [line for line in done.output.splitlines() if " | " in line]
    assert head.startswith("trial | loss | seconds") and len(rows) == 3 and rows[0].endswith("| best")
    assert len(ElementTree.parse(tmp_path / "front.svg").getroot().findall(CIRCLE)) == 3
    best = json.loads((tmp_path / "best.json").read_text())
    assert set(best) == {"learning_rate", "weight_decay", "per_device_train_batch_size"}


def parabola(trial):
    """A trial for each way to end."""
    x, n = trial.suggest_float("x", 0.0, 2.0, step=0.5), trial.suggest_int("n", 2, 6, step=2)
    kind = trial.suggest_categorical("kind", ["even", "odd"])
    assert (2 * x, n % 2, kind in ("even", "odd")) == (int(2 * x), 0, True)
    trial.set_user_attr("seen", trial.number)
    if trial.number == 1:
        raise ValueError("of the first")
    trial.report((x - 1) ** 2 if trial.number != 2 else 100.0, step=0)
    if trial.should_prune():
        raise TrialPruned
    return (x - 1) ** 2


def test_trials_end_as_they_say(alone):
    given = {"sampler": samplers.RandomSampler(0), "pruner": pruners.ThresholdPruner(upper=9.0), "catch": ValueError}
    stored = {"storage": storages.InMemoryStorage(), "study_name": "own", "load_if_exists": True}
    found = search_with_optuna(parabola, 6, "minimize", given | stored)
    assert [one.state for one in found.trials] == ["complete", "failed", "pruned"] + 3 * ["complete"]
    assert [(one.why, one.values) for one in found.trials[1:3]] == [("ValueError: of the first", ()), ("", (100.0,))]
    ran = [one for one in found.trials if one.state == "complete"]
    assert [one.number for one in found.trials] == [0, 1, 2, 3, 4, 5]
    assert all(one.values == ((one.params["x"] - 1) ** 2,) and set(one.params) == {"x", "n", "kind"} for one in ran)
    best = best_runs(found)
    assert best.objective == min(one.values[0] for one in ran) and best.run_summary is found
    again = search_with_optuna(parabola, 1, "minimize", given | stored)
    assert len(again.trials) == 7 and again.trials[:6] == found.trials
    with pytest.raises(ApplyError, match=r"a study 'own' with direction=\['minimize'\]: give this search another"):
        search_with_optuna(parabola, 1, "maximize", stored)


def test_a_search_ends_with_its_time_and_needs_an_end(alone):
    assert search_with_optuna(parabola, None, "minimize", {"timeout": -1.0}).trials == ()
    for trials, options, reason in (
        (None, {}, "has no end"),
        (1, {"n_jobs": 2}, "n_jobs=2: all processes run one trial"),
    ):
        with pytest.raises(ApplyError, match=reason):
            search_with_optuna(parabola, trials, "minimize", options)
    with pytest.raises(ApplyError, match="gives 2 figures, and direction= has 1: give as many"):
        search_with_optuna(lambda trial: [1.0, 2.0], 1, "minimize", {})
    with pytest.raises(ValueError, match="of the first"):
        search_with_optuna(parabola, 2, "minimize", {"catch": (KeyError,)})
    several = search_with_optuna(lambda trial: (trial.number, float("nan")), 1, ["minimize", "maximize"], {})
    assert several.trials[0].why == "an objective that is no number"
    with pytest.raises(ApplyError, match="0 were pruned, and 1 failed; the last failed with an objective that is no"):
        best_runs(several)


def test_a_table_and_a_picture_tell_each_trial():
    values = [(1.0, 5.0), (2.0, 9.0), (3.0, 4.0)]
    trials = [SearchTrial(n, {"x": n / 3, "kind": "odd"}, one, "complete") for n, one in enumerate(values)]
    trials += [SearchTrial(3, {"x": 1}, (), "failed", "why not"), SearchTrial(4, {"x": 2}, (7.0,), "pruned")]
    several = SearchSummary(("minimize", "maximize"), tuple(trials))
    assert [one.number for one in several.front()] == [0, 1]
    assert several.table(["loss", "rows"]) == (
        ["trial", "loss", "rows", "", ""],
        [
            ["0", "1", "5", "x 0, kind odd", "best"],
            ["1", "2", "9", "x 0.3333, kind odd", "best"],
            ["2", "3", "4", "x 0.6667, kind odd", ""],
            ["3", "", "", "x 1", "failed: why not"],
            ["4", "", "", "x 2", "pruned"],
        ],
    )
    assert [one.objective for one in best_runs(several)] == [[1.0, 5.0], [2.0, 9.0]]
    single = SearchSummary(("minimize",), tuple(replace(one, values=one.values[:1]) for one in trials))
    for summary, names, best in ((several, ["loss", "rows"], 2), (single, ["loss"], 1)):
        circles = ElementTree.fromstring(summary.picture(names)).findall(CIRCLE)
        assert (len(circles), sum(one.get("fill") == "#c33" for one in circles)) == (3, best)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_the_front_is_what_no_other_beats(costs):
    found = pareto_front(costs)
    beaten = [any(b != a and b[0] <= a[0] and b[1] <= a[1] for b in costs) for a in costs]
    assert sorted(found) == [number for number, one in enumerate(beaten) if not one]
    assert [costs[number] for number in found] == sorted(costs[number] for number in found)
