"""Files of at most 300 lines and functions of at most 50."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]
LINES, FUNCTION = 300, 50
DATA = {
    "tests/parallel/solve/operator_cases.py": "a call of each operator",
    "tests/unit/convert/inherit/alike_classes.py": "pairs of classes",
}
FILES = [
    path
    for folder in ("modular_converter", "utils", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not {"cases", "golden"} & set(path.relative_to(ROOT).parts)
]


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_no_file_is_long(path: Path) -> None:
    is_long = len(path.read_text(encoding="utf-8").splitlines()) > LINES
    assert not is_long or name_of(path) in DATA


@pytest.mark.parametrize(
    "path", [path for path in FILES if name_of(path).startswith("modular_converter")], ids=name_of
)
def test_no_function_is_long(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef):
            start = node.body[1 if ast.get_docstring(node) and len(node.body) > 1 else 0].lineno
            assert (node.end_lineno or 0) - start < FUNCTION, f"{name_of(path)}:{node.lineno} {node.name}"
