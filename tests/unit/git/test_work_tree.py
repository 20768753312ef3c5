"""What differs from a commit, as git itself tells it."""

from __future__ import annotations

import os

from modular_converter.git.work_tree import open_repository
from tests.unit.trees import git


def test_a_change_of_one_length_in_the_second_of_the_last_commit_is_seen(tmp_path):
    """Size and times of the file are those that the index knows; only the content counts."""
    file = tmp_path / "model.py"
    file.write_text("x = 1\n")
    time = file.stat().st_mtime_ns - 10**10
    os.utime(file, ns=(time, time))
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "core.trustctime", "false")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "first")
    file.write_text("x = 2\n")
    for path in (file, tmp_path / ".git" / "index"):
        os.utime(path, ns=(time, time))
    repository = open_repository(str(tmp_path))
    assert str(file) in repository.snapshot(repository.commit("HEAD"))
