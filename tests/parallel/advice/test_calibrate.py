"""The machine at hand as an entry of a table of devices, measured on two processes of the host."""

from __future__ import annotations

import itertools
import json
import os
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from click.testing import CliRunner

from modular_converter.parallel.advice import machine
from modular_converter.parallel.advice.devices import (
    Device,
    cluster_at_hand,
    cluster_of,
    known_devices,
    name_at_hand,
)
from modular_converter.parallel.advice.machine import calibrated, entry_text
from modular_converter.parallel.commands.advise import advise_command
from modular_converter.parallel.errors import AdviceError


on_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="measures the GPUs instead")
TAKEN_OVER = {"network", "spare", "rounding", "rounding_mib", "token_us", "ranks_us"}
"""What one machine cannot measure: the links between nodes, what an allocator leaves unused in long runs and
adds to tensors, the code of `generate()`, and the modules of ranks without gradients."""


@pytest.mark.slow
@on_cpu
def test_the_file_is_a_table_that_the_commands_take(tmp_path: Path) -> None:
    path = tmp_path / "here.toml"
    done = CliRunner().invoke(advise_command, ["--calibrate", str(path)])
    assert done.exit_code == 0, done.output
    name = name_at_hand(False)
    assert f"--devices 2x{name} --cluster {path}" in done.output
    cluster = cluster_of(f"2x{name}", path)
    assert (cluster.each, cluster.device.name) == (2, name)
    device, usual = cluster.device, known_devices()["CPU"]
    text = path.read_text(encoding="utf-8")
    for one in fields(Device):
        if one.name != "name":
            line = next(row for row in text.splitlines() if row.startswith(f"{one.name} = "))
            assert line.endswith("# not measured") is (one.name in TAKEN_OVER)
    assert (device.network, device.spare) == (usual.network, usual.spare)
    positive = ("memory_gib", "bandwidth", "link", "link_us", "host_link", "context_gib", "kernel_us", "launch_us")
    assert all(getattr(device, one) > 0 for one in (*positive, "backward_us", "plain_us"))
    assert all(0 < getattr(device, one) <= 1 for one in ("products", "attention", "moves"))
    assert set(device.peaks) == {"bfloat16", "float16", "float32", "float64"}
    assert all(speed > 0 for speed in device.peaks.values())


def test_figures_are_what_is_moved_or_computed_in_a_second(alone, tmp_path, monkeypatch):
    """By a clock of which each reading is a second after the one before."""
    ticks, place = itertools.count(), torch.device("cpu")
    sizes = SimpleNamespace(side=64, copied=4096, reduced=1024, rows=1, length=32, heads=2, calls=3, short_calls=40)
    monkeypatch.setattr(machine, "_Sizes", lambda gpu: sizes)
    monkeypatch.setattr(machine, "time", SimpleNamespace(perf_counter=lambda: float(next(ticks))))
    monkeypatch.setenv("LOCAL_RANK", "7")
    machine.measure_rank(0, 1, False, str(tmp_path))
    found = json.loads((tmp_path / "figures.json").read_text())
    assert os.environ["LOCAL_RANK"] == "0" and 0 < found["context_gib"] < found["memory_gib"]
    assert found["peaks"] == dict.fromkeys(
        ("bfloat16", "float16", "float32", "float64"), 2 * 64**3 * sizes.calls / 1e12
    )
    assert (found["products"], found["attention"], found["masked"], found["moves"]) == (0.25, 1.0, 0.75, 1.0)
    moved = sizes.copied * sizes.calls
    assert (found["bandwidth"], found["host_link"]) == (2 * moved / 1e9, moved / 1e9)
    assert (found["kernel_us"], found["workspace_mib"]) == (1e6 / sizes.short_calls, 0)
    assert found["launch_us"] == found["plain_us"] > found["backward_us"] > 0
    pairs = sizes.rows * sizes.heads * sizes.length**2 // 2
    plain, masked = (machine._attention_speed(place, sizes, torch.float32, masked=one) for one in (False, True))
    assert (plain, masked) == (4 * 128 * pairs * sizes.calls, 3 * 128 * pairs * sizes.calls)
    for dtype, each in ((torch.float32, 2 * 4 + 4 + 8 + 3 * 4), (torch.bfloat16, 2 * 2 + 2 + 4 + 3 * 2)):
        assert machine._move_speed(place, sizes, dtype) == sizes.copied / 4 * each * sizes.calls
    links, calls = machine._links(place, 2), sizes.short_calls // 4
    assert links == pytest.approx(
        {"link": sizes.reduced / (1 / sizes.calls - 1 / calls) / 1e9, "link_us": 1e6 / calls, "shared_us": 0.0}
    )
    assert machine._units(place, {"link_us": -16.0}) == {"unit_us": 27.0}  # 3 for each of 8 layers and the model
    assert machine._units(place, {"link_us": 16.0}) == {"unit_us": 0.0}


def test_an_entry_is_read_as_it_was_written(tmp_path: Path) -> None:
    for given in (known_devices()["H100-80GB"], replace(known_devices()["CPU"], name="a.b c")):
        path = tmp_path / "one.toml"
        path.write_text(entry_text(given, frozenset()), encoding="utf-8")
        assert known_devices(path) == {given.name: given}


def test_figures_that_are_lacking_or_unknown_are_named(tmp_path: Path) -> None:
    path = tmp_path / "one.toml"
    text = entry_text(known_devices()["CPU"], frozenset())
    path.write_text(text.replace("kernel_us", "kernel"), encoding="utf-8")
    with pytest.raises(AdviceError, match=r"\[CPU\] lacks kernel_us; see "):
        known_devices(path)
    path.write_text(f"{text}warp = 32\n", encoding="utf-8")
    with pytest.raises(AdviceError, match=r"\[CPU\] has unknown figures warp; known: attention, "):
        known_devices(path)
    with pytest.raises(AdviceError, match="CPU: has no peak for int4; known: bfloat16"):
        known_devices()["CPU"].peak("int4")


def test_a_measured_gpu_stands_for_those_at_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Some New GPU (96 GB)")
    path = tmp_path / "one.toml"
    measured = replace(known_devices()["H100-80GB"], name=name_at_hand(True))
    path.write_text(entry_text(measured, frozenset()), encoding="utf-8")
    assert cluster_at_hand(path).device == measured
    assert str(cluster_at_hand(path)) == "3xSome-New-GPU-96-GB"


def test_more_processes_than_gpus_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(AdviceError, match="--processes 2: this machine has 1 GPUs"):
        calibrated(2)


@pytest.mark.parametrize(
    ("words", "why"),
    [([], "name a MODEL"), (["--calibrate", "a.toml", "--devices", "H100"], "without --devices")],
)
def test_what_the_command_refuses(words: list[str], why: str) -> None:
    done = CliRunner().invoke(advise_command, words)
    assert done.exit_code == 2 and why in done.output
