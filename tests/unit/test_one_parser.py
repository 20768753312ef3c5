"""Code of strangers is parsed in one way: an invalid escape in it gives no warning of Python's."""

from __future__ import annotations

import ast
import warnings
from pathlib import Path

from modular_converter.api import convert_file


PACKAGE = Path(__file__).parents[2] / "modular_converter"
CORE = [path for path in sorted(PACKAGE.rglob("*.py")) if "parallel" not in path.parts]
PARENT = """\
import re


LLAMA_WORD = re.compile("\\d+")


class LlamaMLP:
    def __init__(self, config):
        self.word = re.compile("llama\\d+"), LLAMA_WORD

    def forward(self, x):
        return re.match("\\w", x)
"""
CHILD = """\
import re

from ..llama.modeling_llama import LlamaMLP


PATTERN = re.compile("\\s")


class EmuMLP(LlamaMLP):
    def __init__(self, config):
        super().__init__(config)
        self.space = PATTERN, re.compile("\\s+")

    def forward(self, x):
        return super().forward(x)


__all__ = ["EmuMLP"]
"""


def test_an_invalid_escape_gives_no_warning(tmp_path: Path) -> None:
    for name, text in (("llama/modeling_llama.py", PARENT), ("emu/modular_emu.py", CHILD)):
        path = tmp_path / "models" / name
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = convert_file(path)
    assert result.files and not found


def parses(path: Path) -> bool:
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return any(ast.unparse(node.func) == "ast.parse" for node in nodes if isinstance(node, ast.Call))


def test_the_core_parses_with_one_function() -> None:
    assert [path.relative_to(PACKAGE).as_posix() for path in CORE if parses(path)] == ["model/nodes.py"]
