"""Inside torchrun: gradients, clipping, optimizer steps and state dicts are those of the unsharded run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


pytest.importorskip("transformers")
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name, processes, more", [("gpt2", 2, ()), ("llama", 4, ("meshed",))])
def test_training_is_that_of_the_whole_model(name, processes, more):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0", "tests/parallel/training_script.py", name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    process = subprocess.run(
        [*command, *more], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert process.returncode == 0, process.stderr[-3000:]
    found = json.loads(next(line for line in process.stdout.splitlines() if line.startswith("{")))
    assert found["shares"] and found["class"] and found["norm"] > 0.05
    assert found["full_before"] == found["loaded"] == found["saved"] == found["unsharded"] == 0.0
    assert all(max(pair) < 1e-4 for pair in found["steps"])
    assert found["trained"] < 1e-3 < found["moved"]
