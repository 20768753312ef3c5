"""The cache: a hit converts nothing, any input that changes is a miss, and damage is never trusted."""

from __future__ import annotations

import dataclasses
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modular_converter import entries, fingerprint
from modular_converter.cache import Cache
from modular_converter.check import CheckOptions, check
from modular_converter.config import load_settings
from modular_converter.diagnostics import Diagnostic, Location, Severity
from modular_converter.entries import clear
from modular_converter.findings import pack, unpack
from modular_converter.rules import all_rules


ROOT = Path(__file__).parents[2]
BASE = "from torch import nn\n\n\nclass BaseMLP(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
HEIR = 'from ..{old}.modeling_{old} import {Old}MLP\n\n\nclass {New}MLP({Old}MLP):\n    pass\n\n\n__all__ = ["{New}MLP"]\n'


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two models, one on top of the other, current on disk."""
    root = tmp_path / "tree"
    for old, new in (("base", "first"), ("first", "second")):
        (root / "models" / new).mkdir(parents=True)
        text = HEIR.format(old=old, new=new, Old=old.title(), New=new.title())
        (root / "models" / new / f"modular_{new}.py").write_text(text)
    (root / "models/base").mkdir()
    (root / "models/base/modeling_base.py").write_text(BASE)
    (root / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    assert check(CheckOptions(root=str(root), fix=True)).exit_code == 0
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
    heavy = ("pipeline", "runner", "changes", "inherit", "lint", "emit.format", "emit.format_ruff")
    assert not set(loaded) & {"libcst", "ruff", "rich", *(f"modular_converter.{name}" for name in heavy)}


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


def test_settings_formatter_and_versions_are_part_of_the_key(tree, monkeypatch):
    run(tree)
    path = str(tree / "models/first/modular_first.py")
    settings = load_settings(tree / "models")
    folder = str(tree / "cache")
    assert Cache(folder, settings).look_up(path)
    assert Cache(folder, dataclasses.replace(settings, workers=7, strict=True)).look_up(path)
    assert not Cache(folder, dataclasses.replace(settings, kept_names=("first",))).look_up(path)
    others = {"formatter_stamp": lambda settings: "another ruff", "__version__": "9", "_own_files": lambda: [__file__]}
    for name, other in others.items():
        with monkeypatch.context() as patched:
            patched.setattr(fingerprint, name, other)
            assert not Cache(folder, settings).look_up(path), name
    monkeypatch.setattr(sys, "version", "another Python")
    assert not Cache(folder, settings).look_up(path)


def test_what_a_ruff_configuration_extends_is_part_of_the_key(tree):
    (tree / "pyproject.toml").write_text('[tool.modular-converter]\n[tool.ruff]\nextend = "base.toml"\n')
    (tree / "base.toml").write_text("line-length = 100\n")
    assert check(CheckOptions(root=str(tree), fix=True, cache=str(tree / "cache"))).exit_code == 0
    run(tree)
    assert hits(tree) == ["first", "second"]
    (tree / "base.toml").write_text("line-length = 99\n")
    assert hits(tree) == []
    (tree / "base.toml").write_text('extend = "base.toml"\n')
    assert hits(tree) == []


def test_an_edit_in_what_was_not_looked_at_is_no_miss(tree):
    base = tree / "models/base/modeling_base.py"
    base.write_text(BASE + "\n\ndef unused():\n    return 1\n")
    assert run(tree).exit_code == 0
    base.write_text("# a note\n" + base.read_text().replace("return 1", "return 2"))
    assert hits(tree) == ["first", "second"]
    base.write_text(base.read_text().replace("x + 1", "x + 2"))
    assert hits(tree) == ["second"]
    base.write_text(BASE)
    assert hits(tree) == ["second"]


def test_what_is_known_is_converted_again_when_this_run_changes_what_it_was_made_from(tree):
    run(tree)
    base = tree / "models/base/modeling_base.py"
    base.write_text(BASE.replace("x + 1", "x + 2"))
    cache = str(tree / "cache")
    known = check(CheckOptions(root=str(tree), cache=cache)).differences
    assert [one.new for one in known] == [one.new for one in check(CheckOptions(root=str(tree))).differences]
    assert check(CheckOptions(root=str(tree), cache=cache, fix=True)).exit_code == 0
    assert hits(tree) == ["first", "second"]


def test_findings_are_remembered(tree):
    modular = tree / "models/first/modular_first.py"
    modular.write_text(modular.read_text().replace("__all__ = [", '__all__ = ["Gone", '))
    options = CheckOptions(root=str(tree), cache=str(tree / "cache"))
    check(dataclasses.replace(options, fix=True))
    fresh = check(CheckOptions(root=str(tree)))
    assert fresh.diagnostics and "first" in hits(tree)
    assert check(options).diagnostics == fresh.diagnostics
    assert check(dataclasses.replace(options, strict=True)).exit_code == 2
    assert check(CheckOptions(root=str(tree), strict=True)).exit_code == 2


@given(data=st.data(), text=st.text(), number=st.integers(1, 99), end=st.none() | st.integers(1, 99))
def test_any_finding_comes_back_as_it_was(data, text, number, end):
    rule = data.draw(st.sampled_from(all_rules()))
    override = data.draw(st.none() | st.sampled_from(Severity))
    finding = Diagnostic(rule, Location(text, number, number, end, end), text, text, text, override)
    assert unpack(pack(finding)) == finding


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff\n{}", None])
def test_a_damaged_entry_is_a_miss(tree, damage):
    run(tree)
    for entry in (tree / "cache").glob("*.json"):
        content = entry.read_bytes()
        entry.write_bytes(content.replace(b'"files"', b'"filed"') if damage is None else damage)
    assert hits(tree) == []
    assert run(tree).exit_code == 0
    assert hits(tree) == ["first", "second"]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 2**32))
def test_flipped_bytes_are_never_trusted(tree, seed):
    run(tree)
    places = random.Random(seed)
    for entry in (tree / "cache").glob("*.json"):
        content = bytearray(entry.read_bytes())
        content[places.randrange(len(content))] ^= places.randrange(1, 256)
        entry.write_bytes(
            bytes(content) if places.random() < 0.7 else bytes(content[: places.randrange(len(content))])
        )
    assert hits(tree) == []
    assert run(tree).exit_code == 0


def test_an_entry_of_another_file_is_a_miss(tree):
    run(tree)
    one, other = (tree / "cache").glob("*.json")
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    assert hits(tree) == []


def test_a_generated_file_that_differs_is_a_miss_until_it_is_put_right(tree):
    assert run(tree).exit_code == 0
    generated = tree / "models/second/modeling_second.py"
    text = generated.read_text()
    generated.write_text("x = 1\n")
    assert run(tree).exit_code == 1 and run(tree).exit_code == 1
    generated.write_text(text)
    assert hits(tree) == ["first", "second"]


def test_processes_that_write_at_once(tree):
    code = f"from modular_converter.check import *; print(check(CheckOptions(root={str(tree)!r}, cache={str(tree / 'cache')!r})).exit_code)"
    command = [sys.executable, "-c", code]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in range(3)]
    assert [process.communicate()[0] for process in running] == ["0\n"] * 3
    assert sorted(path.suffix for path in (tree / "cache").iterdir()) == [".json", ".json"]


def test_runs_that_write_at_once_and_a_folder_that_cannot_be_written(tree, tmp_path):
    with ThreadPoolExecutor(3) as pool:
        assert {result.exit_code for result in pool.map(run, [tree] * 3)} == {0}
    assert hits(tree) == ["first", "second"]
    (tmp_path / "file").write_text("")
    assert check(CheckOptions(root=str(tree), cache=str(tmp_path / "file"))).exit_code == 0


def test_it_is_bounded_and_can_be_cleared(tree, monkeypatch):
    monkeypatch.setattr(entries, "MAX_ENTRIES", 1)
    run(tree)
    assert len(list((tree / "cache").iterdir())) == 1
    monkeypatch.setattr(entries, "MAX_ENTRIES", 10)
    size = next((tree / "cache").iterdir()).stat().st_size
    monkeypatch.setattr(entries, "MAX_BYTES", size + 10)
    run(tree)
    assert len(list((tree / "cache").iterdir())) == 1
    assert clear(str(tree / "cache")) == 1
    assert clear(str(tree / "cache")) == 0
