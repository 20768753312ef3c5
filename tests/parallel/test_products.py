"""Products of data and tensor ranks: training in a layout is that of one process, and goes on in another layout."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


pytest.importorskip("transformers")

from tests.parallel.test_training import ROOT, run_under_torchrun  # noqa: E402


LAYOUTS = ("fsdp2.tp2", "ddp2.tp2", "tp4", "fsdp4", "ddp2.fsdp2", "zero 2")


def test_every_layout_trains_as_one_process():
    found = run_under_torchrun(4, "tests/parallel/products_script.py", "products")
    assert all(found[layout]["worst"] < 1e-12 for layout in LAYOUTS)
    assert all(found[layout]["said"] == 0.0 for layout in LAYOUTS)  # torch puts each DTensor together rightly
    assert {kind for layout in LAYOUTS for kind in found[layout]["kinds"]} == {"DTensor", "Parameter"}
    assert "8 processes, and there are 4: start 8, or take one of fsdp4" in found["too many"]
    assert found["no data"] == "ApplyError: offload= needs a layout with fsdp, such as fsdp2; this one is tp4"
    assert "takes no DTensors: give parallelize layout='ddp2.tp4'" in found["replicas"]
    assert "over processes that hold other shares" in found["wrong group"]
    assert found["seeds"].startswith("ApplyError: words.weight has other values on process 2")


def test_a_checkpoint_is_resumed_in_another_layout():
    found = run_under_torchrun(4, "tests/parallel/products_script.py", "checkpoints")
    assert found.pop("folders") == ["step-00000002"]
    assert len(found) == 4 and max(found.values()) < 1e-12


def test_a_kill_leaves_the_last_complete_checkpoint(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "tests/parallel/kill_script.py", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [one["step"] for one in found] == [2, 2, 3], done.stderr
    assert all(one["same"] for one in found)
    assert [len(one["names"]) for one in found] == [2, 2, 2]


# Packed, tied and dropped weights of a model of the library.
def test_a_model_of_the_library_trains_as_one_process():
    found = run_under_torchrun(4, ROOT / "utils/prove_training.py", "--worker", "--types=gpt2", "--layouts=fsdp2.tp2")
    assert found["worst"] < 1e-6
