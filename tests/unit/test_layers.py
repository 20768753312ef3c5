"""Imports point one way: diagnostics <- rules <- config <- records <- source <- inherit <- inline <- emit <- …"""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest


PACKAGE = Path(__file__).parents[2] / "modular_converter"
LAYERS = [
    {"diagnostics"},
    {"rules"},
    {"settings", "convert", "files", "check", "git", "graph", "reporting", "api"},
    {"commands", "parallel"},
    {"__init__", "__main__"},
]
HEAVY = {"libcst", "torch", "transformers", "black"}


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if "parallel" not in path.relative_to(PACKAGE).parts]


def layer(name: str) -> int:
    return next(position for position, names in enumerate(LAYERS) if name in names)


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            if node.module == "modular_converter":
                found.update(f"modular_converter.{alias.name}" for alias in node.names)
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_down(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    own = layer(parts[0])
    for name in imports(path):
        top, *rest = name.split(".")
        if top == "modular_converter" and rest and rest[0] not in ("__version__", parts[0]):
            assert layer(rest[0]) <= own, f"{name} lies above {parts[0]}"


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_core_imports_nothing_heavy(path):
    tops = {name.split(".")[0] for name in imports(path)}
    allowed = {"black"} if path.name == "format_black.py" else set()
    assert not tops & HEAVY - allowed


def test_help_imports_only_click():
    code = "import sys; from modular_converter.commands.convert import main\ntry: main(['--help'])\nexcept SystemExit: pass\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"rich", "libcst", "modular_converter.convert.pipeline", "modular_converter.settings.load"}
