"""The process group that a script under torchrun has not made itself ends with the script."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


SCRIPT = """
import atexit
import torch.distributed as dist
atexit.register(lambda: print("left" if not dist.is_initialized() else "there", flush=True))
from modular_converter.parallel.engine.group.process_grid import join_group
join_group("cpu")
"""


@pytest.mark.parametrize(
    "end, said",
    [("", "left"), pytest.param("dist.destroy_process_group()", "left", marks=pytest.mark.slow), ("1 / 0", "there")],
)
def test_the_group_ends_before_the_interpreter_unless_an_error_ends_it(end, said):
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    command = [sys.executable, "-c", SCRIPT + end]
    done = subprocess.run(
        command, env={**os.environ, **alone}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == [said], done.stderr
    assert done.returncode == (1 if said == "there" else 0)


REPEATED = """
import torch.distributed as dist
from modular_converter.parallel.engine.group.process_grid import join_group, mesh_of
groups = []
for turn in range(2):
    join_group("cpu")
    meshes = [mesh_of("cpu", {"tp": 1}), mesh_of("cpu", {"tp": 1}), mesh_of("cpu", {"dp_shard": 1, "tp": 1})]
    assert meshes[0] is meshes[1] and meshes[2] is not meshes[0]
    groups.append(meshes[0].get_group())
    dist.all_reduce(__import__("torch").ones(1), group=groups[-1])
    dist.destroy_process_group()
assert groups[0] is not groups[1]
print("again")
"""


def test_a_mesh_is_made_once_in_a_process_group_and_anew_in_the_next():
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    command = [sys.executable, "-c", REPEATED]
    done = subprocess.run(
        command, env={**os.environ, **alone}, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout.split() == ["again"], done.stderr
