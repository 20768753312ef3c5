"""A saved model under torchrun: each process reads its share; the numbers are those of the whole model."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch


pytest.importorskip("transformers")
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402


ROOT = Path(__file__).parents[2]


def test_processes_of_a_group_read_their_shares(tmp_path):
    torch.manual_seed(3)
    small = build(target_of("mixtral", "causal"), {"vocab_size": 157}).model  # which two do not divide
    small.save_pretrained(tmp_path / "one", max_shard_size="50KB")
    with torch.no_grad():
        for parameter in small.parameters():
            parameter.add_(1)
    small.save_pretrained(tmp_path / "other")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--rdzv-backend", "c10d"]
    command += ["--rdzv-endpoint", "127.0.0.1:0", "tests/parallel/checkpoint_script.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [*command, str(tmp_path / "one"), str(tmp_path / "other")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert found["outputs"] < 1e-5 and found["norm"] < 1e-4 and found["tokens"] and found["weights"]
    assert found["share"] < 0.6 and found["read"] < found["share"] + 0.01
    assert "holds another model on process 1" in found["errors"][0]
    assert found["errors"][1].startswith("process 1: ") and "is no folder" in found["errors"][1]
