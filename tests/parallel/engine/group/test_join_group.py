"""The process group that a script under torchrun has not made itself ends with the script."""

from __future__ import annotations

import pytest

from tests.parallel.launch import launch


SCRIPT = """
import atexit
import sys
import torch.distributed as dist
atexit.register(lambda: print("left" if not dist.is_initialized() else "there", flush=True))
from modular_converter.parallel.engine.group.process_grid import join_group
join_group("cpu")
"""


@pytest.mark.parametrize(
    "end, said",
    [("sys.exit()", "left"), ("dist.destroy_process_group()\nsys.exit()", "left"), ("1 / 0", "there")],
)
def test_the_group_ends_before_the_interpreter_unless_an_error_ends_it(end, said, tmp_path):
    """What a script raises, an exit too, goes through to the end of the interpreter."""
    (tmp_path / "main.py").write_text(SCRIPT + end)
    done = launch(1, tmp_path / "main.py")
    assert done.output.split() == [said], done.errors
    assert done.code == (1 if said == "there" else 0)


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


def test_a_mesh_is_made_once_in_a_process_group_and_anew_in_the_next(tmp_path):
    (tmp_path / "main.py").write_text(REPEATED)
    done = launch(1, tmp_path / "main.py")
    assert done.output.split() == ["again"], done.errors
