"""Without the extra `parallel`, the error names the extra where it is missed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]
BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {library!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Blocked())
"""
IMPORT = """
from modular_converter.parallel.errors import MissingLibraryError
try:
    from modular_converter.parallel import {name}
except ImportError as error:
    assert isinstance(error, MissingLibraryError) and isinstance(error.__cause__, ModuleNotFoundError)
    print(error)
"""


def run(code: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["parallelize", "Session"])
def test_a_missing_torch_is_named_with_its_extra(name):
    said = run(BLOCK.format(library="torch") + IMPORT.format(name=name))
    assert said.startswith("torch is not installed; ") and ".[parallel]" in said


def test_an_unknown_name_is_still_an_attribute_error():
    run("import modular_converter.parallel as wing\nassert not hasattr(wing, 'parallelise')")
