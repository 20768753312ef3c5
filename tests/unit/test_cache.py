"""The cache: a hit converts nothing, any input that changes is a miss, and damage is never trusted."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from modular_converter import cache as cache_module
from modular_converter.cache import Cache, clear
from modular_converter.check import CheckOptions, check
from modular_converter.config import load_settings


ROOT = Path(__file__).parents[2]
BASE = "from torch import nn\n\n\nclass BaseMLP(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
HEIR = 'from ..{old}.modeling_{old} import {Old}MLP\n\n\nclass {New}MLP({Old}MLP):\n    pass\n\n\n__all__ = ["{New}MLP"]\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two models, one on top of the other, current on disk and settled."""
    root = tmp_path / "tree"
    for old, new in (("base", "first"), ("first", "second")):
        (root / "models" / new).mkdir(parents=True)
        text = HEIR.format(old=old, new=new, Old=old.title(), New=new.title())
        (root / "models" / new / f"modular_{new}.py").write_text(text)
    (root / "models/base").mkdir()
    (root / "models/base/modeling_base.py").write_text(BASE)
    (root / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    assert check(CheckOptions(root=str(root), fix=True)).exit_code == 0
    time.sleep(0.1)
    return root


def run(tree: Path):
    return check(CheckOptions(root=str(tree), cache=str(tree / "cache")))


def hits(tree: Path) -> list[str]:
    cache = Cache(str(tree / "cache"), load_settings(tree / "models"))
    paths = sorted(str(path) for path in tree.rglob("modular_*.py"))
    return [os.path.basename(path)[8:-3] for path in paths if cache.look_up(path)]


def test_a_clean_run_is_remembered_and_a_hit_imports_no_pipeline(tree):
    assert hits(tree) == []
    assert run(tree).exit_code == 0
    assert hits(tree) == ["first", "second"]
    code = (
        "import sys; from modular_converter.check_cli import main\n"
        f"try: main(['--root', {str(tree)!r}])\nexcept SystemExit as end: print(end.code)\nprint(*sys.modules)"
    )
    environment = {**os.environ, "MODULAR_CONVERTER_CACHE": str(tree / "cache"), "PYTHONPATH": str(ROOT)}
    for _ in range(2):  # another `sys.path` is another key: the first run fills, the second hits
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True
        )
    exit_code, *loaded = done.stdout.split()
    assert exit_code == "0"
    assert not set(loaded) & {"modular_converter.pipeline", "modular_converter.runner", "libcst", "ruff"}


@pytest.mark.parametrize(
    ("name", "missed"),
    [
        ("first/modular_first.py", "first"),
        ("first/modeling_first.py", "first second"),
        ("base/modeling_base.py", "first"),
        ("second/modular_second.py", "second"),
        ("second/modeling_second.py", "second"),
    ],
)
def test_a_file_that_changes_is_a_miss(tree, name, missed):
    run(tree)
    path = tree / "models" / name
    path.write_text(path.read_text().replace("MLP", "Mlp"))
    assert not set(hits(tree)) & set(missed.split())
    assert run(tree).exit_code in (1, 2)


def test_a_neighbours_neighbour_is_seen_through_the_generated_file(tree):
    run(tree)
    base = tree / "models/base/modeling_base.py"
    base.write_text(BASE.replace("x + 1", "x + 2"))
    result = run(tree)
    assert [os.path.basename(one.path) for one in result.differences] == ["modeling_first.py", "modeling_second.py"]


def test_settings_formatter_and_version_are_part_of_the_key(tree, monkeypatch):
    run(tree)
    path = str(tree / "models/first/modular_first.py")
    settings = load_settings(tree / "models")
    folder = str(tree / "cache")
    assert Cache(folder, settings).look_up(path)
    assert Cache(folder, dataclasses.replace(settings, workers=7)).look_up(path)
    assert not Cache(folder, dataclasses.replace(settings, strict=True)).look_up(path)
    with monkeypatch.context() as patched:
        patched.setattr(cache_module, "formatter_stamp", lambda settings: "another ruff")
        assert not Cache(folder, settings).look_up(path)
    monkeypatch.setattr(cache_module, "__version__", "9")
    assert not Cache(folder, settings).look_up(path)


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff\n{}", None])
def test_a_damaged_entry_is_a_miss(tree, damage):
    run(tree)
    for entry in (tree / "cache").glob("*.json"):
        content = entry.read_bytes()
        entry.write_bytes(content.replace(b'"files"', b'"filed"') if damage is None else damage)
    assert hits(tree) == []
    assert run(tree).exit_code == 0
    assert hits(tree) == ["first", "second"]


def test_what_has_just_changed_or_differs_is_not_remembered(tree):
    os.utime(tree / "models/first/modular_first.py")
    assert run(tree).exit_code == 0
    assert hits(tree) == ["second"]
    (tree / "models/second/modeling_second.py").write_text("x = 1\n")
    assert run(tree).exit_code == 1 and run(tree).exit_code == 1


def test_runs_that_write_at_once_and_a_folder_that_cannot_be_written(tree, tmp_path):
    with ThreadPoolExecutor(3) as pool:
        assert {result.exit_code for result in pool.map(run, [tree] * 3)} == {0}
    assert hits(tree) == ["first", "second"]
    (tmp_path / "file").write_text("")
    assert check(CheckOptions(root=str(tree), cache=str(tmp_path / "file"))).exit_code == 0


def test_it_is_bounded_and_can_be_cleared(tree, monkeypatch):
    monkeypatch.setattr(cache_module, "MAX_ENTRIES", 1)
    run(tree)
    assert len(list((tree / "cache").iterdir())) == 1
    assert clear(str(tree / "cache")) == 1
    assert clear(str(tree / "cache")) == 0
