"""Which package an absolute import means: that of the checkout, never an installed one of the same name."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from modular_converter.files.arguments import models_folder
from modular_converter.files.read import find_package, program_on_path
from modular_converter.findings import ConversionError
from modular_converter.git.work_tree import GitError, WorkTrees


INSTALLED = os.path.dirname(importlib.util.find_spec("click").origin or "")  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("files", "beside", "name", "found"),
    [
        (["click/__init__.py"], "click/models/emu", "click", "click"),
        (["click/__init__.py", "click/models/__init__.py"], "click/models/emu", "click", "click"),
        (["click/src/click/__init__.py"], "click/src/click/models/emu/deep/er", "click", "click/src/click"),
        (["pyproject.toml", "src/click/__init__.py"], "examples/modular", "click", "src/click"),
        (["pyproject.toml", "click/__init__.py"], "examples/modular", "click", "click"),
        (["pyproject.toml", "click/__init__.py"], ".", "click", "click"),
        (["a/pyproject.toml", "src/click/__init__.py"], "a/examples", "click", None),  # the nearest project alone
        (["click/pyproject.toml"], "click/models/emu", "click", None),  # a project, not a package
        (["click/pyproject.toml", "click/click/core.py"], "click/models/emu", "click", None),
        (["own/__init__.py", "own/click/__init__.py"], "own/click/models", "click", None),  # own.click
        (["click/models/emu/a.py"], "click/models/emu", "click", None),  # Python prefers the package with a file
        (["click/__init__.py"], "click/.venv/lib/site-packages/x", "click", None),
        (["click_x/models/emu/a.py"], "click_x/models/emu", "click_x", "click_x"),
        (["pyproject.toml", "src/click_x/models/a.py"], "examples", "click_x", "src/click_x"),
        (
            ["click_x/pyproject.toml", "click_x/src/click_x/a/b.py"],
            "click_x/src/click_x/a",
            "click_x",
            "click_x/src/click_x",
        ),
        (["x/a.py"], "x", "no-name", ""),
        (["x/a.py"], "x", "click_x", ""),
    ],
)
def test_the_checkout_comes_before_installed_packages(
    files: list[str], beside: str, name: str, found: str | None, tmp_path: Path
) -> None:
    """`None` means the installed package, "" none at all."""
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    (tmp_path / beside).mkdir(parents=True, exist_ok=True)
    expected = INSTALLED if found is None else found and str(tmp_path / found)
    assert (find_package(name, os.path.normpath(tmp_path / beside)) or "") == expected


pytestmark = pytest.mark.skipif(os.name == "nt", reason="a shell script stands in for a program")


@pytest.mark.parametrize(("forbidden", "found"), [("", True), ("/", True), ("tree", False), ("other", True)])
def test_a_program_in_the_forbidden_folder_is_not_found(tmp_path, monkeypatch, forbidden, found):
    (tmp_path / "tree").mkdir()
    program = tmp_path / "tree/program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f":.:tree:{tmp_path}/nowhere:{tmp_path}/tree")
    monkeypatch.chdir(tmp_path)
    inside = forbidden if forbidden in ("", "/") else str(tmp_path / forbidden)
    assert program_on_path("program", inside) == (str(program) if found else "")


def test_a_folder_without_a_repository_is_called_that(tmp_path):
    with pytest.raises(GitError, match="not a git repository"):
        WorkTrees().of(str(tmp_path))


@pytest.mark.parametrize(("name", "said"), [("there", "`--root`"), ("missing", "no such package is installed")])
def test_a_folder_is_no_package(name: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src" / "there").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConversionError) as error:
        models_folder(f"src/{name}", None)
    assert said in error.value.findings[0].message
