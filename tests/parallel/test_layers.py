"""The solver of the wing knows nothing of torch. The floors of the wing's packages are in `tests/unit/test_layers.py`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


WING = Path(__file__).parents[2] / "modular_converter" / "parallel"


@pytest.mark.parametrize("package", ["solve", "trace", "plans", "schedule"])
def test_the_solver_and_its_values_do_without_torch(package):
    torch_side = {
        "record",
        "call_names",
        "unchanged",
        "state",
        "contents",
        "holders",
        "resolve",
        "class_settings",
        "integers",
        "call_integers",
    }
    paths = [path.relative_to(WING.parent.parent).with_suffix("") for path in (WING / package).rglob("*.py")]
    imports = "; ".join(f"import {'.'.join(path.parts)}" for path in paths if path.name not in torch_side)
    code = f"import sys; {imports}; assert not {{'torch', 'transformers'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
