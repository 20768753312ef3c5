"""Programs and modules in a hostile tree: none is run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from modular_converter.convert.emit import formatters
from tests.unit.check.test_hostile_trees import GENERATED, TABLE, result


pytestmark = pytest.mark.skipif(os.name == "nt", reason="pipes, links and modes of POSIX")

PLANTED = "import pathlib\npathlib.Path(r'{mark}').touch()\nraise SystemExit('run')\n"


MODULES = (
    "sitecustomize",
    "usercustomize",
    "libcst",
    "ruff",
    "black",
    "click",
    "rich",
    "json",
    "typing",
    "conftest",
    "setup",
)


@pytest.fixture
def planted(tree: Path, tmp_path: Path) -> Path:
    """A file that would come into being if anything in the tree ran."""
    mark = tmp_path / "run"
    for folder in (tree, tree / "models", tree / "models/leaf"):
        for name in MODULES:
            (folder / f"{name}.py").write_text(PLANTED.format(mark=mark))
        for program in ("ruff", "git", "black"):
            (folder / program).write_text(f"#!/bin/sh\ntouch '{mark}'\n")
            (folder / program).chmod(0o755)
    (tree / "evil.egg-info").mkdir()
    points = "[console_scripts]\nx = setup:main\n[ruff]\nx = setup:main\n[modular_converter]\nx = setup:main\n"
    (tree / "evil.egg-info/entry_points.txt").write_text(points)
    (tree / "evil.egg-info/PKG-INFO").write_text("Metadata-Version: 2.1\nName: ruff\nVersion: 99\n")
    with open(tree / GENERATED, "a") as file:
        file.write("# by hand\n")
    return mark


@pytest.mark.parametrize("folder", ["", "models", "models/leaf"])
def test_nothing_of_the_tree_is_run(tree, planted, folder):
    """`models/leaf` has a `git` and a `ruff`: neither the folder nor a relative folder of PATH is searched for ruff."""
    script = Path(__file__).parents[3] / "utils/check_modular_conversion.py"
    path = os.pathsep.join([os.environ["PATH"], "", ".", str(tree)])
    command = [sys.executable, str(script), "--no-cache", "--root", str(tree), "--changed-since", "HEAD"]
    done = subprocess.run(command, cwd=tree / folder, env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    assert not planted.exists()


@pytest.mark.parametrize("place", ["", ".", "models", "absolute", "link"])
@pytest.mark.parametrize("mark", ["pyproject.toml", "ruff.toml", ""])
def test_no_formatter_of_the_tree_is_run(tree, planted, tmp_path, monkeypatch, place, mark):
    """This environment has no ruff; a project file beside the models does not make the rest of the repository foreign."""
    (tmp_path / "bin").symlink_to(tree)
    folder = {"absolute": str(tree), "link": str(tmp_path / "bin")}.get(place, place)
    if mark:
        (tree / "models" / mark).write_text(TABLE if mark == "pyproject.toml" else "")
    monkeypatch.setattr(formatters, "own_ruff", lambda: "")
    monkeypatch.setenv("PATH", os.pathsep.join([folder, "/usr/bin", "/bin"]))
    monkeypatch.chdir(tree)
    assert result(tree).exit_code == 2
    assert not planted.exists()
