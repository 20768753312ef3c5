"""Programs are found on PATH, and not in the tree that is read."""

from __future__ import annotations

import os

import pytest

from modular_converter.files.programs import program_on_path
from modular_converter.git.work_tree import GitError, WorkTrees


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
