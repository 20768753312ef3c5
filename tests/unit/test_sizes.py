"""Functions of at most 60 lines: a longer one does several things."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]
FUNCTION = 60
FILES = sorted((ROOT / "modular_converter").rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_function_is_long(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            start = node.body[1 if ast.get_docstring(node) and len(node.body) > 1 else 0].lineno
            assert (node.end_lineno or 0) - start < FUNCTION, f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
