"""A step that ran beside its forecast: the figures of the record, and a run of two processes."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import time
import types

import pytest
import torch
from click.testing import CliRunner

from modular_converter.parallel.cli import main
from modular_converter.parallel.commands import measure_schedule
from modular_converter.parallel.commands.measure_schedule import REPEATS, WARM_UP, _Run, layer_times
from modular_converter.parallel.schedule.forecast import PipelineSetting, Timed, forecast
from modular_converter.parallel.schedule.report import (
    MeasuredStep,
    compute_difference,
    measured_lines,
    measured_table,
    measured_value,
)
from modular_converter.parallel.schedule.stage_costs import even_costs


SETTING = PipelineSetting("1F1B", 2, 1, 4)
FORECAST = forecast(SETTING, even_costs(4))


def slower(factor: float, gap: float, peaks: tuple[float, ...] = (0.0, 0.0)) -> MeasuredStep:
    """The predicted step with longer actions, and a wait at its end."""
    ranks = tuple(
        tuple(Timed(one.action, one.start * factor, one.end * factor) for one in rank)
        for rank in FORECAST.timeline.ranks
    )
    return MeasuredStep(FORECAST.timeline.step * factor + gap, ranks, peaks)


def test_a_step_as_predicted_differs_in_nothing():
    step = slower(1.0, 0.0)
    assert step.timeline(FORECAST.timeline).bubble == pytest.approx(FORECAST.timeline.bubble)
    assert compute_difference(FORECAST, step) == 0
    assert "0.0% longer" in measured_lines(FORECAST, step)[0]
    assert [row[1:3] for row in measured_table(FORECAST, step)[1]] == [["24 s", "24 s"], ["24 s", "24 s"]]


def test_a_longer_step_is_divided_among_its_causes():
    step = slower(1.5, 6.0, (2.0**30, 2.0**20))
    line = FORECAST.timeline.step
    value = measured_value(FORECAST, step)
    assert value["difference"] == {"compute": pytest.approx(line / 2), "between_actions": pytest.approx(6.0)}
    assert value["step"] == line * 1.5 + 6
    assert value["by_rank"][0]["bubble"] == pytest.approx(1 - 36 / value["step"])
    assert measured_lines(FORECAST, step)[1].startswith("  +15 s because")
    assert [row[-1] for row in measured_table(FORECAST, step)[1]] == ["1.00 GiB", "1.00 MiB"]
    assert measured_lines(FORECAST, slower(0.5, 0.0))[1].startswith("  -15 s")


class Waits(torch.nn.Module):
    """A layer whose forward takes longer than that of others."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.linear, self.seconds = torch.nn.Linear(4, 4), seconds

    def forward(self, hidden):
        time.sleep(self.seconds)
        return torch.relu(self.linear(hidden))


class Chain(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(9, 4)
        self.layers = torch.nn.ModuleList([Waits(0.0), Waits(0.05), Waits(0.0)])

    def forward(self, ids):
        hidden = self.embed(ids)
        for layer in self.layers:
            hidden = layer(hidden)
        return {"loss": hidden.sum()}


class Output(dict):
    loss = property(lambda self: self["loss"])


def test_the_slow_layer_is_the_one_that_is_slow():
    """Orders of magnitude alone: a sleep is never shorter than it says."""
    model = Chain()
    model.register_forward_hook(lambda module, args, result: Output(result))
    calls = []
    model.layers[2].register_full_backward_hook(lambda *given: calls.append(1))
    costs = layer_times(model, "layers", {"ids": torch.tensor([[1, 2]])}, trains=True)
    assert [layer.forward > 0.05 for layer in costs.layers] == [False, True, False]
    assert all(layer.input_backward > 0 for layer in costs.layers)
    assert len(calls) == 2 * (WARM_UP + REPEATS)
    assert model.embed.weight.grad is not None
    assert layer_times(model, "layers", {"ids": torch.tensor([[1, 2]])}, trains=False).layers[1].compute > 0.05


def test_measuring_leaves_no_graph_behind():
    model = Chain()
    model.register_forward_hook(lambda module, args, result: Output(result))
    layer_times(model, "layers", {"ids": torch.tensor([[1, 2]])}, trains=True)
    gc.collect()
    assert not [one for one in gc.get_objects() if type(one) is _Run]


@pytest.mark.slow
def test_a_pipeline_runs_beside_its_forecast(tmp_path):
    sizes = [
        "hidden_size=32",
        "intermediate_size=64",
        "num_attention_heads=4",
        "num_key_value_heads=4",
        "vocab_size=100",
    ]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    command += ["--rdzv-endpoint", "127.0.0.1:0", "-m", "modular_converter.parallel.cli", "schedule", "llama"]
    command += [part for size in sizes for part in ("--set", size)]
    command += [
        "--layers",
        "4",
        "--length",
        "16",
        "--dtype",
        "float32",
        "--ranks",
        "2",
        "--chunks",
        "4",
        "--schedule",
        "zb1p",
    ]
    command += ["--measure", "--format", "json", "--svg", str(tmp_path / "grid.svg")]
    ran = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    value = json.loads(ran.stdout)
    chosen, measured = value["chosen"], value["measured"]
    for predicted, found in zip(chosen["actions"], measured["actions"], strict=True):
        assert [one["action"] for one in predicted] == [one["action"] for one in found]
        assert all(one["start"] <= one["end"] <= measured["step"] for one in found)
    assert 0 < measured["bubble"] < 1 and chosen["transfer"] > 0
    assert sum(measured["difference"].values()) == pytest.approx(measured["step"] - chosen["step"])
    assert "measured on CPU processes" in value["notes"][1]
    assert "measured step" in (tmp_path / "grid-measured.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("llama --ranks 2 --chunks 4 --measure", "torchrun --nproc-per-node 2 --no-python modular-plan schedule"),
        ("--even 8 --ranks 2 --chunks 4 --measure", "--measure needs a MODEL"),
        ("llama --ranks 1 --chunks 4 --measure --transfer 1", "it measures them"),
        ("llama --ranks 1 --chunks 4 --measure --schedule zbv --inference", "no forward without a backward"),
    ],
)
def test_wrong_uses_are_told(arguments, said):
    result = CliRunner().invoke(main, ["schedule", *arguments.split()])
    assert (result.exit_code, said in result.output) == (2, True), result.output


class GivenClock:
    """A clock of given readings."""

    def __init__(self, device):
        self.now = lambda: next(GivenClock.readings)
        self.seconds = lambda start, end: end - start


def test_a_transfer_is_half_of_a_median_round_trip(monkeypatch):
    """Each round trip takes a second more than the one before."""
    sent = []
    monkeypatch.setattr(measure_schedule, "Clock", GivenClock)
    for name, value in (("get_world_size", 2), ("get_rank", 1)):
        monkeypatch.setattr(measure_schedule.dist, name, lambda *_, value=value: value)
    for name in ("send", "recv"):
        monkeypatch.setattr(
            measure_schedule.dist, name, lambda data, to, name=name: sent.append((name, to, len(data)))
        )
    GivenClock.readings = (time for trip in range(9) for time in (100.0 * trip, 101.0 * trip))
    assert measure_schedule.transfer_time(64, torch.device("cpu")) == (2 + 3 + 4 + 5 + 6) / 5 / 2
    assert sent == 7 * [("recv", 0, 64), ("send", 0, 64)]
    for name, value in (("get_rank", 2), ("get_world_size", 1)):
        monkeypatch.setattr(measure_schedule.dist, name, lambda *_, value=value: value)
        assert measure_schedule.transfer_time(64, torch.device("cpu")) == 0.0
        monkeypatch.setattr(measure_schedule.dist, "get_rank", lambda: 0)


@pytest.mark.parametrize("trains", [True, False])
def test_the_step_of_median_length_counts(alone, monkeypatch, trains):
    weight, calls = torch.nn.Parameter(torch.ones(1)), []

    class Steps:
        clock = types.SimpleNamespace(
            device=torch.device("cpu"), on=contextlib.nullcontext, timed=lambda: len(calls) * ("done",)
        )

        def parameters(self):
            return [weight]

        def step(self, **inputs):
            assert weight.grad is None
            weight.grad = torch.ones(1)
            calls.append(("step", inputs))

        def __call__(self, **inputs):
            calls.append(("forward", inputs))

    monkeypatch.setattr(measure_schedule, "Clock", GivenClock)
    GivenClock.readings = iter([0, 90, 0, 80, 0, 5, 0, 1, 0, 4, 0, 2, 0, 3])
    found = measure_schedule.measured_step(Steps(), {"x": 1}, trains)
    assert (found.seconds, found.ranks, found.peaks) == (3, (7 * ("done",),), (0.0,))
    assert calls == 7 * [("step" if trains else "forward", {"x": 1})]
    assert (weight.item() < 1.0) is trains
