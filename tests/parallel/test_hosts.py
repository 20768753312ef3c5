"""Two hosts of one process each, as far as torchrun can tell: both are this one, each with a copy of a saved model."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch


pytest.importorskip("transformers")
from modular_converter.parallel.tiny.build import build, target_of  # noqa: E402


ROOT = Path(__file__).parents[2]


def on_two_hosts(script, arguments):
    """What the first process prints. The hosts are two launches, which meet at one port."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    launches = []
    for node, own in enumerate(arguments):
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(node)]
        command += ["--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", port, script, *own]
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        launches.append(subprocess.Popen(command, cwd=ROOT, env=environment, **how))
    try:
        said = [launch.communicate(timeout=600) for launch in launches]
    finally:
        for launch in launches:
            launch.kill()
    for launch, (_, errors) in zip(launches, said):
        assert launch.returncode == 0, errors[-3000:]
    return json.loads(next(line for line in said[0][0].splitlines() if line.startswith("{")))


def test_two_hosts_read_their_shares_of_their_copies(tmp_path):
    torch.manual_seed(3)
    small = build(target_of("mixtral", "causal"), {"vocab_size": 157}).model  # which two do not divide
    small.save_pretrained(tmp_path / "one", max_shard_size="50KB")
    shutil.copytree(tmp_path / "one", tmp_path / "copy")
    with torch.no_grad():
        for parameter in small.parameters():
            parameter.add_(1)
    small.save_pretrained(tmp_path / "other")
    folders = [(str(tmp_path / name), str(tmp_path / "other")) for name in ("one", "copy")]
    found = on_two_hosts("tests/parallel/hosts_script.py", folders)
    assert found["saved"]
    assert len(list((tmp_path / "one-saved").glob("model-*"))) >= 2
    assert found["outputs"] < 1e-5 and found["norm"] < 1e-4 and found["tokens"] and found["weights"]
    assert found["share"] < 0.6 and found["read"] < found["share"] + 0.01
    assert "holds another model on process 1" in found["errors"][0]
    assert found["errors"][1].startswith("process 1: ") and "is not a folder" in found["errors"][1]
    assert found["plain"] and found["plain outputs"] < 1e-5 and found["plain tokens"] and found["plain weights"]
    assert not found["gradients"] and len(found["errors"]) == 5
    assert all("has its form for inference" in said for said in found["errors"][2:4])
    assert "adapters would be made only for this process's share" in found["errors"][4]
