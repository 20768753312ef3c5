"""Conventions that no release has, in a few published models: each is one finding, and `--write` writes nothing."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import pytest


UTILS = Path(__file__).parents[3] / "utils"
STARTS = ("mistral", "qwen2", "olmo", "gemma", "cohere", "starcoder2")
"""Models that build on few others."""


@pytest.fixture
def inventions(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(UTILS))
    spec = importlib.util.spec_from_file_location("invent_conventions", UTILS / "invent_conventions.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The package with these models, and those that they build on, alone."""
    published = Path(importlib.util.find_spec("transformers").origin).parent
    root = tmp_path / "transformers"
    (root / "models").mkdir(parents=True)
    shutil.copy(published / "__init__.py", root)
    shutil.copytree(published / "models/auto", root / "models/auto")
    waiting, seen = [*STARTS], set()
    while waiting:
        model = waiting.pop()
        if model in seen or not (published / "models" / model).is_dir():
            continue
        seen.add(model)
        shutil.copytree(published / "models" / model, root / "models" / model)
        for path in (root / "models" / model).glob("modular_*.py"):
            waiting += re.findall(r"^from \.\.(\w+)\.", path.read_text(encoding="utf-8"), re.MULTILINE)
    return root


def test_each_invention_is_one_finding_and_nothing_is_written(inventions, package: Path) -> None:
    outcomes = inventions.try_all(package)
    assert len(outcomes) == 10
    tried = [one for one in outcomes if one.changed >= 3]
    assert len(tried) >= 5
    assert [one for one in tried if not one.is_recognised] == []
    assert [one.name for one in outcomes if one.written] == []
