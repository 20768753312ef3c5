"""A process group and the ranks of a session are two ways to run a model, and each imports its own half alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest


SCRIPT = """
import json, sys
from modular_converter.parallel import parallelize
from tests.parallel.troubled import PLAN, Troubled

if __name__ == "__main__":
    model = parallelize(Troubled(), plan=PLAN, device="cpu", **json.loads(sys.argv[1]))
    rooms = {name.split(".")[3] for name in sys.modules if name.startswith("modular_converter.parallel.engine.")}
    print(json.dumps([type(model).__name__, sorted(rooms)]))
"""
GROUP = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


def rooms(tmp_path, environment, **given):
    """The rooms of the engine that a process has imported when its model is sharded."""
    (tmp_path / "main.py").write_text(SCRIPT)
    environment = {**os.environ, **environment, "PYTHONPATH": os.getcwd()}
    command = [sys.executable, str(tmp_path / "main.py"), json.dumps(given)]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert found.returncode == 0, found.stderr
    name, names = json.loads(found.stdout)
    assert name == "Troubled"
    return set(names)


@pytest.mark.parametrize("given", [{}, pytest.param({"num_gpus": 1}, marks=pytest.mark.slow)])
def test_a_process_group_imports_nothing_of_the_server(tmp_path, given):
    found = rooms(tmp_path, GROUP, **given)
    assert {"base", "group"} <= found and not found & {"ranks", "remote"}


@pytest.mark.slow
def test_the_server_imports_nothing_of_the_process_group(tmp_path):
    found = rooms(tmp_path, {}, num_gpus=2, init_method="forkserver")
    assert {"base", "remote"} <= found and "group" not in found
