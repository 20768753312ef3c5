"""Functions of at most 60 lines: a longer one does several things."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path


ROOT = Path(__file__).parents[2]
FUNCTION = 60


def long_functions(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            start = node.body[1 if ast.get_docstring(node) and len(node.body) > 1 else 0].lineno
            if (node.end_lineno or 0) - start >= FUNCTION:
                yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"


def test_no_function_is_long() -> None:
    files = sorted((ROOT / "modular_converter").rglob("*.py"))
    assert files and not [said for path in files for said in long_functions(path)]
