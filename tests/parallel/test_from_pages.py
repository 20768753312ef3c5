"""The pages for people who come from elsewhere: each call that they name is one of this package, and what is gone is gone."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
import re
from pathlib import Path

import pytest

from modular_converter.parallel import Training, parallelize
from modular_converter.parallel.engine.base.memory import METHODS
from modular_converter.parallel.layout import Layout


ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/from").glob("*.md"))
GONE = ("retribert", "transfo_xl", "xlm_prophetnet")
"""Models of parallelformers that the page says to have no class any more."""


def ours(page: Path) -> str:
    """What a page says of this package: the right columns of its table, and the text below."""
    text = page.read_text(encoding="utf-8")
    return "\n".join(line.split(" | ", 1)[1] if line.startswith("| ") else line for line in text.splitlines())


def calls(text: str, name: str) -> list[ast.Call]:
    found = re.findall(rf"`({name}\([^`]*\))`", text)
    return [node for one in found if isinstance(node := ast.parse(one.replace("…", "1")).body[0].value, ast.Call)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_each_call_exists(page: Path) -> None:
    text = ours(page)
    fields = {field.name for field in dataclasses.fields(Training)}
    for call in calls(text, "parallelize"):
        inspect.signature(parallelize).bind(*call.args, **{str(one.arg): one.value for one in call.keywords})
    for call in calls(text, "Training"):
        assert {one.arg for one in call.keywords} <= fields
    for layout in re.findall(r'layout="([\w.]+)"', text):
        assert Layout.parse(layout.replace("N", "2"))
    for file in re.findall(r"`((?:examples|utils)/\w+\.py)`", text):
        if "python " not in file:
            assert (ROOT / file).is_file() or page.name == "transformers-scripts.md", file


def test_the_calls_of_parallelformers_are_those_here() -> None:
    text = (ROOT / "docs/from/parallelformers.md").read_text(encoding="utf-8")
    here = inspect.signature(parallelize).parameters
    for row in re.findall(r"^\| (.+?) \| (.+) \|$", text, re.MULTILINE):
        for name in re.findall(r"\b(\w+)=", row[0]):
            assert (name in here) != ("leave them out" in row[1] or "none is needed" in row[1]), name
    assert set(re.findall(r"`(?:model\.)?(memory_\w+)\(\)`", text)) == set(METHODS)


@pytest.mark.parametrize("name", GONE)
def test_what_is_gone_is_gone(name: str) -> None:
    assert f"`{name}`" in (ROOT / "docs/from/parallelformers.md").read_text(encoding="utf-8")
    assert importlib.util.find_spec(f"transformers.models.{name}") is None


def test_scripts_of_transformers_are_accepted() -> None:
    text = (ROOT / "docs/from/transformers-scripts.md").read_text(encoding="utf-8")
    for script in ("modular_model_converter.py", "check_modular_conversion.py"):
        assert script in text and (ROOT / "utils" / script).is_file()
