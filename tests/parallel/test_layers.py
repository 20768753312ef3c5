"""Imports of the wing point one way too, and its solver knows nothing of torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest


WING = Path(__file__).parents[2] / "modular_converter" / "parallel"
LAYERS = [
    {"errors"},
    {"plans", "trace"},
    {"solve", "shard", "tiny"},
    {"proof"},
    {"pipeline", "engine", "source"},
    {"tables", "api"},
    {"commands"},
    {"cli", "__init__"},
]


def layer(name: str) -> int:
    return next(position for position, names in enumerate(LAYERS) if name in names)


@pytest.mark.parametrize("path", sorted(WING.rglob("*.py")), ids=lambda path: str(path.relative_to(WING)))
def test_imports_point_down(path):
    own = path.relative_to(WING).with_suffix("").parts[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("modular_converter.parallel."):
            other = node.module.split(".")[2]
            assert other == own or layer(other) < layer(own), f"{node.module} lies beside or above {own}"


@pytest.mark.parametrize("package", ["solve", "trace", "plans"])
def test_the_solver_and_its_values_do_without_torch(package):
    torch_side = {"record", "call_names", "resolve", "class_settings"}
    names = [path.stem for path in (WING / package).glob("*.py") if path.stem not in torch_side]
    imports = "; ".join(f"import modular_converter.parallel.{package}.{name}" for name in names if name != "__init__")
    code = f"import sys; {imports}; assert not {{'torch', 'transformers'}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
