"""The solver knows nothing of torch, and plans nothing of the engine. The floors are in `tests/unit/test_layers.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import networkx
import pytest

from tests.import_graph import ImportGraph


WING = Path(__file__).parents[2] / "modular_converter" / "parallel"


@pytest.mark.parametrize("package", ["solve", "trace", "plans", "schedule"])
def test_the_solver_and_its_values_do_without_torch(package):
    torch_side = {"record", "unchanged", "resolve", "class_settings", "integers"}
    paths = [path.relative_to(WING.parent.parent).with_suffix("") for path in (WING / package).rglob("*.py")]
    imports = "; ".join(f"import {'.'.join(path.parts)}" for path in paths if path.name not in torch_side)
    code = f"import sys; {imports}; assert not {{'torch', 'transformers'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_commands_that_run_no_model_on_devices_do_not_reach_the_engine():
    graph, wing = ImportGraph(WING.parent).graph, "modular_converter.parallel"
    graph.remove_nodes_from([f"{wing}.commands.run", f"{wing}.commands.measure_schedule", f"{wing}.commands.tune"])
    reached = networkx.descendants(graph, f"{wing}.cli")
    assert f"{wing}.choice.same_numbers" in reached
    assert not [name for name in reached if name.startswith(f"{wing}.engine") or name == f"{wing}.api"]


@pytest.mark.slow
def test_plans_are_derived_and_proven_without_the_engine(tmp_path):
    commands = [["derive", "llama"], ["verify", "llama"], ["show", "llama"], ["derive", "llama", "--kind", "pipeline"]]
    code = (
        "import sys\nfrom modular_converter.parallel.cli import main\n"
        f"for words in {commands}:\n"
        "    try: main(words)\n"
        "    except SystemExit as end: assert not end.code, words\n"
        "loaded = [name for name in sys.modules if 'parallel.engine' in name]\n"
        "assert not loaded, loaded\nassert 'modular_converter.parallel.choice.same_numbers' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "colwise" in done.stdout
