"""`modular-plan tune`: trials on two CPU processes that end in every way, studies that are killed, and a recorded grid."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import pytest


pytest.importorskip("transformers")
pytest.importorskip("optuna")

import optuna  # noqa: E402
import psutil  # noqa: E402
from click.testing import CliRunner  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from modular_converter.parallel import read_chosen  # noqa: E402
from modular_converter.parallel.advice.candidates import Question, advise, forecasts_that_fit  # noqa: E402
from modular_converter.parallel.advice.devices import Cluster, device_at_hand  # noqa: E402
from modular_converter.parallel.advice.subject import model_in_question  # noqa: E402
from modular_converter.parallel.cli import main  # noqa: E402
from modular_converter.parallel.commands import tune as command  # noqa: E402
from modular_converter.parallel.costs import CountRequest  # noqa: E402
from modular_converter.parallel.errors import AdviceError  # noqa: E402
from modular_converter.parallel.tuning import trial  # noqa: E402
from modular_converter.parallel.tuning.chosen import (  # noqa: E402
    ChoiceTree,
    TrialCandidate,
    candidates_of,
    chosen_of,
)
from modular_converter.parallel.tuning.study import LayoutStudy, front_picture, owned_storage  # noqa: E402
from modular_converter.parallel.tuning.trial import TrialOutcome  # noqa: E402
from tests.parallel.forked_trials import fork_trials  # noqa: E402
from tests.parallel.launch import ROOT, launch  # noqa: E402
from tests.parallel.small_memory import HEADS, SIZES  # noqa: E402


GRID = json.loads(Path(__file__).with_name("grid_of_layouts.json").read_text(encoding="utf-8"))
FIELDS = ("n_layer=2", "n_embd=32", "n_head=2", "vocab_size=64", "n_positions=32")
SMALL = [one for field in FIELDS for one in ("--set", field)]


def recorded():
    """The candidates of the recorded grid as predicted, and what was measured of each."""
    candidates = [TrialCandidate(chosen_of(one["chosen"], "grid"), *one["predicted"]) for one in GRID]
    return candidates, {str(one.chosen.values()): row["measured"] for one, row in zip(candidates, GRID)}


def study_of(candidates, objectives=("tokens",), path=None, seed=0, storage=None):
    return LayoutStudy(
        storage or optuna.storages.InMemoryStorage(), lambda: candidates, objectives, "the question", seed
    )


def quiet(line):
    assert line


@pytest.mark.parametrize("seed", range(5))
def test_a_quarter_of_the_grids_trials_finds_a_setting_within_three_percent_of_its_best(seed):
    candidates, measured = recorded()
    study = study_of(candidates, seed=seed)
    study.run(len(candidates) // 4, lambda one: TrialOutcome("", "", measured[str(one.chosen.values())]), quiet)
    assert len(study.results()) == len(candidates) // 4
    best = max(one["tokens_a_second"] for one in measured.values())
    assert study.front()[0][1].measured["tokens_a_second"] >= 0.97 * best


def test_a_study_of_all_settings_runs_each_once_and_has_the_grids_front():
    candidates, measured = recorded()
    study = study_of(candidates, ("tokens", "memory", "latency"))
    study.run(10_000, lambda one: TrialOutcome("", "", measured[str(one.chosen.values())]), quiet)
    assert sorted(str(one.chosen) for one, _ in study.results()) == sorted(str(one.chosen) for one in candidates)
    assert len(study.results()) == len(candidates)
    # Optuna's own front, of the same trials.
    theirs = {str(one.user_attrs["values"]) for one in study.study.best_trials}
    assert {str(one.chosen.values()) for one, _ in study.front()} == theirs
    tokens = [outcome.measured["tokens_a_second"] for _, outcome in study.front()]
    assert tokens == sorted(tokens, reverse=True) and tokens[0] == max(m["tokens_a_second"] for m in measured.values())


def test_the_choices_of_each_setting_lead_to_it_and_to_no_other():
    candidates, _ = recorded()
    tree = ChoiceTree(candidates)
    for one in candidates:
        taken = tree.parameters(one)
        fixed = SimpleNamespace(suggest_categorical=lambda name, values, taken=taken: taken[name])
        assert tree.suggested(fixed) is one


def commanded(folder, monkeypatch, outcomes, **more):
    """What the command makes of a study of the grid whose trials end so; its exit code, and the number of settings left."""
    left_to_end, candidates = iter(outcomes), recorded()[0]
    study, options = (
        study_of(candidates),
        {"limit": None, "timeout": 50.0, "trials": 3, "form": "text", "storage": None},
    )
    options |= {"optimizer": "adamw", "steps": 4, "output": folder / "best.json", "picture": None, **more}

    def run_here(one, processes, limit_s):
        assert (one.model, one.device, one.steps, processes) == ("sent", "cpu", 4, 2)
        assert limit_s == 50.0 or options["limit"] and limit_s <= options["limit"]
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
        kind = next(left_to_end)
        if kind == "interrupted":
            raise KeyboardInterrupt
        return TrialOutcome(kind, "why", {} if kind else recorded()[1][str(one.chosen.values())])

    monkeypatch.setattr(trial, "run_here", run_here)
    monkeypatch.setattr(trial, "model_of_question", lambda subject: "sent")
    before = signal.getsignal(signal.SIGTERM)
    left = command._run(study, None, SimpleNamespace(cluster=SimpleNamespace(each=2)), False, options)
    assert signal.getsignal(signal.SIGTERM) is before
    return study, command._report(study, options, left), left


def test_a_study_becomes_a_table_a_file_and_a_picture(tmp_path, monkeypatch, capsys):
    picture = tmp_path / "front.svg"
    study, code, left = commanded(tmp_path, monkeypatch, ["", "memory", ""], picture=picture)
    best, outcome = study.front()[0]
    assert (code, left) == (0, 0)
    assert json.loads((tmp_path / "best.json").read_text()) == {**best.chosen.values(), "measured": outcome.measured}
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    said = capsys.readouterr()
    assert len(said.out.splitlines()) == 4 and "the time ended" not in said.err
    assert f'best.json: {best.chosen}; run it with parallelize(model, layout="{tmp_path}/best.json")' in said.err


def test_a_study_in_json_says_what_is_left(tmp_path, monkeypatch, capsys):
    study, code, left = commanded(tmp_path, monkeypatch, ["", "interrupted"], form="json")
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert (code, left, found["left"], found["objectives"]) == (0, 2, 2, ["tokens"])
    [row] = found["trials"]
    assert (row["kind"], row["why"], row["best"], row["layout"]) == (
        "",
        "why",
        True,
        str(study.front()[0][0].chosen.layout),
    )
    assert "the time ended: 1 trials ran, and 2 are left (with --storage the same command goes on)" in said.err


@pytest.mark.parametrize(("limit", "ran", "left"), [(0.0, 0, 3), (40.0, 0, 3), (1000.0, 3, 0)])
def test_a_trial_that_hangs_ends_the_study_if_its_time_has_ended(tmp_path, monkeypatch, capsys, limit, ran, left):
    study, code, found = commanded(tmp_path, monkeypatch, 3 * ["hung"], limit=limit, storage="own.db")
    assert (code, found, len(study.results())) == (1, left, ran)
    said = capsys.readouterr().err
    assert said.endswith("modular-plan: no setting ran\n") and not (tmp_path / "best.json").exists()
    assert ("are left (the same command goes on)" in said) is bool(left)


def test_a_trial_whose_end_was_written_and_not_told_is_told():
    candidates, measured = recorded()
    storage = optuna.storages.InMemoryStorage()
    study = study_of(candidates, storage=storage)
    running = study.study.ask()
    one = study.tree.suggested(running)
    outcome = TrialOutcome("", "", measured[str(one.chosen.values())])
    running.set_user_attr("values", one.chosen.values())
    running.set_user_attr("outcome", [outcome.kind, outcome.why, outcome.measured])
    assert study.results() == []
    assert study_of(candidates, storage=storage).results() == [(one, outcome)]


KINDS = st.sampled_from(["", "memory", "hung", "failed", "raises", "killed"])


class KilledError(BaseException):
    """Ends the owner of a study within a trial, as SIGKILL does."""


@settings(max_examples=25, deadline=None)
@given(st.lists(KINDS, min_size=1, max_size=12), st.integers(1, 12))
def test_whatever_becomes_of_trials_a_study_ends_with_as_many_settings_as_asked_for(kinds, trials):
    candidates, measured = recorded()
    candidates, storage, left = candidates[:12], optuna.storages.InMemoryStorage(), list(kinds)

    def measure(one):
        kind = left.pop(0) if left else ""
        if kind == "killed":
            raise KilledError
        if kind == "raises":
            raise ValueError("of a trial")
        return TrialOutcome(kind, "reason", {} if kind else measured[str(one.chosen.values())])

    while True:
        study = study_of(candidates, storage=storage)
        try:
            study.run(trials, measure, quiet)
            break
        except KilledError:
            continue
    found = study.results()
    assert len(found) == min(trials, len(candidates)) == len({str(one.chosen.values()) for one, _ in found})
    assert all((not outcome.kind) == bool(outcome.measured) for _, outcome in found)
    assert bool(study.front()) is any(not outcome.kind for _, outcome in found)


def test_a_trial_that_kills_the_study_twice_has_failed():
    candidates, measured = recorded()
    storage = optuna.storages.InMemoryStorage()
    worst = str(study_of(candidates).candidates[0].chosen.values())

    def measure(one):
        if str(one.chosen.values()) == worst:
            raise KilledError
        return TrialOutcome("", "", measured[str(one.chosen.values())])

    for _ in range(2):
        with pytest.raises(KilledError):
            study_of(candidates, storage=storage).run(3, measure, quiet)
    study = study_of(candidates, storage=storage)
    study.run(3, measure, quiet)
    failed = [str(one.chosen.values()) for one, outcome in study.results() if outcome.kind == "failed"]
    assert failed == [worst] and len(study.results()) == 3


@pytest.fixture(scope="module")
def subject():
    fields = {"n_layer": 8, "n_embd": 512, "n_head": 4, "vocab_size": 8192}
    return model_in_question(CountRequest("gpt2", fields, None, 1, 256, True, "float32"))


@pytest.mark.parametrize("part", [0.3, *(pytest.param(part, marks=pytest.mark.slow) for part in (0.6, 0.9))])
def test_what_the_advice_excludes_is_never_a_setting(subject, part):
    device = device_at_hand(False, 2, "")
    full = Question(Cluster(1, 2, device), 8, "adamw", 0)
    needs = sorted(one.memory.total for one in forecasts_that_fit(subject, full))
    limit = needs[int(part * len(needs))]
    small = Question(Cluster(1, 2, type(device)(**{**vars(device), "memory_gib": limit / 2**30})), 8, "adamw", 0)
    found = candidates_of(subject, small, [8], True)
    allowed = {str(one.setting.layout) for one in forecasts_that_fit(subject, small)}
    allowed |= {str(one.setting.layout) for one in forecasts_that_fit(subject, Question(small.cluster, 1, "adamw", 0))}
    assert 0 < len(found) < len(candidates_of(subject, full, [8], True))
    assert all(one.memory <= limit * 1.0001 for one in found)
    assert len({str(one.chosen.values()) for one in found}) == len(found)
    assert str(advise(subject, small).best.setting.layout) in {str(one.chosen.layout) for one in found}
    nothing = Question(Cluster(1, 2, type(device)(**{**vars(device), "memory_gib": 0.01})), 8, "adamw", 0)
    with pytest.raises(AdviceError, match="fits on 2xCPU: the nearest"):
        candidates_of(subject, nothing, [8], True)


def tune(folder, *arguments):
    before = os.getcwd()
    os.chdir(folder)
    try:
        done = CliRunner().invoke(main, ["tune", *map(str, arguments)])
    finally:
        os.chdir(before)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


@pytest.fixture
def forked():
    with fork_trials():
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_trials_on_two_processes_become_a_file_that_the_script_runs(tmp_path):
    few = ["gpt2", *SMALL, "--sequence", 16, "--batch", 4, "--trials", 2, "--steps", 5, "--timeout", 120]
    several = ["--objective", "tokens", "--objective", "memory", "--picture", "front.svg"]
    done = tune(tmp_path, *few, *several, "--format", "json")
    assert done.exit_code == 0, done.stderr
    rows = json.loads(done.stdout)["trials"]
    assert len(rows) == 2 and all(not row["kind"] and row["measured"]["seconds"] > 0 for row in rows), rows
    best = max((row for row in rows if row["best"]), key=lambda row: row["measured"]["tokens_a_second"])
    chosen = read_chosen(tmp_path / "best.json")
    assert chosen.values().items() <= best.items()
    points = ElementTree.parse(tmp_path / "front.svg").getroot().findall("{http://www.w3.org/2000/svg}circle")
    assert len(points) == 2
    (tmp_path / "text.txt").write_text("to be or not to be, that is the question. " * 40)
    arguments = ["gpt2", tmp_path / "text.txt", "--folder", tmp_path / "run", "--device", "cpu", "--steps", 2]
    arguments += ["--layout", tmp_path / "best.json", "--settings", *[f for f in FIELDS if "vocab" not in f]]
    assert (trained := launch(2, "examples/train.py", *arguments)).code == 0, trained.errors[-2000:]


LLAMA = [f"--set={name}={value}" for name, value in (SIZES | HEADS).items()]


def troubled(folder, trials, limit):
    few = ["--sequence", 16, "--batch", 4, "--trials", trials, "--steps", 1, "--timeout", limit]
    return tune(folder, "tests.parallel.small_memory.InTrouble", *LLAMA, *few, "--picture", "front.svg")


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    ("trouble", "said", "limit"),
    [
        pytest.param("memory", "memory: OutOfMemoryError", 120, marks=pytest.mark.slow),
        pytest.param("raise", "failed: ValueError: of a layer", 120, marks=pytest.mark.slow),
        pytest.param("hang", "hung: did not end in time", 40, marks=pytest.mark.slow),
        pytest.param("kill", "memory: a process was killed", 120, marks=pytest.mark.slow),
        pytest.param("exit", "failed: process 1 ended with 7", 120, marks=pytest.mark.slow),
    ],
)
def test_a_trial_that_fails_is_one_and_the_study_goes_on(tmp_path, monkeypatch, trouble, said, limit):
    monkeypatch.setenv("TROUBLE", trouble)
    monkeypatch.setenv("TROUBLE_FILE", str(tmp_path / "mark"))
    done = troubled(tmp_path, 2, limit)
    assert done.exit_code == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if re.match(r"\d/2 ", line)]
    assert [said in line for line in lines] == [True, False], done.stderr
    assert said in done.stdout and done.stdout.count("  best") == 1
    assert str(read_chosen(tmp_path / "best.json")) in lines[1]


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("how", ["limit", pytest.param("signal", marks=pytest.mark.slow)])
def test_when_the_time_ends_the_best_so_far_is_written_and_the_trials_left_are_told(tmp_path, monkeypatch, how):
    """The second trial hangs, until the limit of all trials has passed or the command is asked to end."""
    monkeypatch.setenv("TROUBLE", "hang")
    monkeypatch.setenv("TROUBLE_FILE", str(tmp_path / "mark"))
    run_here, runs = trial.run_here, []

    def second_hangs(trial, processes, limit):
        runs.append(limit)
        if len(runs) == 1:  # as if it had been in trouble before
            (tmp_path / "mark").write_text("")
            return run_here(trial, processes, limit)
        (tmp_path / "mark").unlink()
        if how == "signal":
            threading.Timer(1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        return run_here(trial, processes, 2 if how == "limit" else limit)

    monkeypatch.setattr(trial, "run_here", second_hangs)
    few = ["--sequence", 16, "--batch", 4, "--trials", 3, "--steps", 1, "--timeout", 300]
    few += ["--time-limit", 200] if how == "limit" else []
    done = tune(tmp_path, "tests.parallel.small_memory.InTrouble", *LLAMA, *few, "--storage", "study.db")
    assert done.exit_code == 0, done.stderr
    assert len(runs) == 2 and runs[1] <= (200 if how == "limit" else 300)
    assert "the time ended: 1 trials ran, and 2 are left (the same command goes on)" in done.stderr
    assert str(read_chosen(tmp_path / "best.json")) in done.stderr.splitlines()[-1]
    with owned_storage(tmp_path / "study.db") as storage:
        study = LayoutStudy(storage, list, ["tokens"], asked_of(storage))
        assert len(study.results()) == 1


def asked_of(storage):
    """The question of the study in a storage, without its objectives."""
    return optuna.load_study(study_name="modular-plan", storage=storage).user_attrs["asked"].rpartition(", for ")[0]


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_if_all_trials_fail_no_file_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("TROUBLE", "raise")
    monkeypatch.setenv("TROUBLE_FILE", str(tmp_path / "none" / "mark"))
    done = troubled(tmp_path, 1, 120)
    assert done.exit_code == 1 and "no setting ran" in done.stderr and "of a layer" in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_study_that_is_killed_goes_on_and_leaves_no_process(tmp_path):
    command = [sys.executable, "-m", "modular_converter.parallel.cli", "tune", "gpt2", *SMALL]
    command += ["--sequence", "16", "--batch", "4", "--steps", "2", "--storage", "study.db", "--trials"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "STUDY": str(tmp_path)}
    with (tmp_path / "first.log").open("w") as log:
        first = subprocess.Popen([*command, "2"], cwd=tmp_path, env=environment, stderr=log, stdout=log)
        try:
            waited_for(lambda: "1/2 " in (tmp_path / "first.log").read_text() and processes_of(tmp_path, first.pid))
        finally:
            first.send_signal(signal.SIGKILL)
            first.wait()
    waited_for(lambda: not processes_of(tmp_path, first.pid))
    done = subprocess.run([*command, "2"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    again = [line for line in done.stderr.splitlines() if re.match(r"\d/2 ", line)]
    assert len(again) == 1 and again[0].startswith("2/2 "), done.stderr
    with owned_storage(tmp_path / "study.db") as storage:
        study = optuna.load_study(study_name="modular-plan", storage=storage)
        states = [one.state.name for one in study.trials]
        killed = [one for one in study.trials if "outcome" not in one.user_attrs and one.state.name == "FAIL"]
        assert len(killed) == 1 and states.count("RUNNING") == 0
        assert str(chosen_of(killed[0].user_attrs["values"], "")) in again[0]
        with pytest.raises(AdviceError, match="another process owns this study"), owned_storage(tmp_path / "study.db"):
            pass
    other = tune(tmp_path, "gpt2", *SMALL, "--sequence", 16, "--batch", 8, "--storage", "study.db")
    assert other.exit_code == 2 and "the storage holds a study of gpt2 n_layer=2" in other.stderr


def waited_for(condition):
    deadline = time.monotonic() + 200
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def processes_of(folder, owner):
    """The living processes of trials of a study, beside its owner."""
    found = []
    for one in psutil.process_iter():
        try:
            if one.pid != owner and one.environ().get("STUDY") == str(folder) and "trial" in " ".join(one.cmdline()):
                found.append(one)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gpt3"], "unknown model type 'gpt3'"),
        (["gpt2", "--set", "n_layers_=2"], "n_layers_"),
        (["gpt2", *SMALL, "--train", "adam8"], "optimizer 'adam8'"),
        (["gpt2", *SMALL, "--objective", "speed"], "'speed' is not one of"),
        (["gpt2", *SMALL, "--batch", "0"], "0 is not in the range"),
        (["gpt2", *SMALL, "--sequence", "64"], "64 tokens are longer than the 32 positions"),
        (["gpt2", *SMALL, "--batch", "4", "--storage", "."], "is a directory"),
        (["gpt2", *SMALL, "--sequence", "16", "--storage", "text.txt"], "text.txt: is no storage of Optuna"),
        (["gpt2", *SMALL, "--sequence", "16", "--storage", "text.txt/s.db"], "text.txt/s.db: cannot be written"),
        (["gpt2", *SMALL, "--sequence", "16", "--output", "none/best.json"], "none"),
        (["gpt2", *SMALL, "--sequence", "16", "--picture", "none/front.svg"], "none"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_runs(tmp_path, arguments, said):
    (tmp_path / "text.txt").write_text("no database " * 1000)
    done = tune(tmp_path, *arguments)
    assert done.exit_code == 2 and said in done.stderr and "settings fit" not in done.stderr, done.stderr


def test_without_optuna_the_extra_is_named(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "optuna" else find(name, *a))
    done = tune(tmp_path, "gpt2")
    assert done.exit_code == 2 and "optuna is not installed; install this project with its extra `tune`" in done.stderr


@given(st.lists(st.tuples(st.floats(0.01, 100), st.floats(1, 1e12)), min_size=1, max_size=12))
def test_a_picture_is_xml_and_all_its_points_lie_within_it(figures):
    candidates, _ = recorded()
    results = [
        (one, TrialOutcome("", "", {"tokens_a_second": a, "memory": b, "seconds": 1 / a}))
        for one, (a, b) in zip(candidates, figures)
    ]
    picture = ElementTree.fromstring(front_picture(results, results[:1], ("tokens",)))
    points = picture.findall("{http://www.w3.org/2000/svg}circle")
    assert len(points) == len(results)
    assert all(0 <= float(one.get("cx")) <= 640 and 0 <= float(one.get("cy")) <= 400 for one in points)
