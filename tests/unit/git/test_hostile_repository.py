"""Nothing that a repository holds or configures hides a stale file from `--changed-since`, or runs a program."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from modular_converter.check.run import CheckOptions, check
from modular_converter.git import work_tree
from tests.unit.git.test_affected import append, posix, touched
from tests.unit.trees import commit, git


def same_size_and_time(tree: Path) -> None:
    path = tree / LEAF
    git(tree, "config", "core.trustctime", "false")
    git(tree, "config", "core.checkStat", "minimal")
    os.utime(path, (1e9, 1e9))
    git(tree, "status")
    path.write_text(path.read_text().replace("x + 1", "x + 7"))
    os.utime(path, (1e9, 1e9))


def ignored(tree: Path) -> None:
    git(tree, "rm", "-q", "--cached", LEAF)
    append(tree / ".gitignore", f"{LEAF}\n")
    commit(tree)
    append(tree / LEAF)


def line_ends(tree: Path) -> None:
    append(tree / ".gitattributes", "*.py text eol=crlf\n")
    commit(tree)
    (tree / LEAF).write_bytes((tree / LEAF).read_bytes().replace(b"\n", b"\r\n"))


def flagged(flag: str) -> Callable[[Path], None]:
    def hide(tree: Path) -> None:
        git(tree, "update-index", flag, LEAF)
        append(tree / LEAF)

    return hide


def another_commit_in_its_place(tree: Path) -> None:
    first = git(tree, "rev-parse", "HEAD")
    append(tree / LEAF)
    second = commit(tree)
    git(tree, "reset", "-q", "--soft", first)
    git(tree, "replace", first, second)


def repository_of_plain_files(tree: Path) -> None:
    """The files of a bare repository, which anyone can commit: its last commit holds the stale file."""
    append(tree / LEAF)
    other = tree.parent / "other"
    shutil.copytree(tree, other)
    commit(other)
    for name in ("HEAD", "config", "objects", "refs", "index"):
        copy = shutil.copytree if (other / ".git" / name).is_dir() else shutil.copy
        copy(other / ".git" / name, tree / "models" / name)
    append(tree / "models/config", "[core]\n\tbare = false\n\tworktree = ..\n")


def nested_repository(tree: Path) -> None:
    git(tree / "models/leaf", "init", "-q")
    append(tree / LEAF)
    commit(tree / "models/leaf")


LEAF = "models/leaf/modeling_leaf.py"
WAYS = (
    same_size_and_time,
    ignored,
    line_ends,
    flagged("--assume-unchanged"),
    flagged("--skip-worktree"),
    another_commit_in_its_place,
    repository_of_plain_files,
    nested_repository,
)


@pytest.mark.parametrize("hide", WAYS)
def test_nothing_in_the_repository_hides_a_stale_file(tree, hide):
    hide(tree)
    assert touched(tree) == "leaf"


def test_a_work_tree_elsewhere_is_an_error(tree):
    shutil.copytree(tree, tree.parent / "clean")
    git(tree, "config", "core.worktree", str(tree.parent / "clean"))
    append(tree / LEAF)
    found = check(CheckOptions(root=str(tree), changed_since="HEAD"))
    assert found.exit_code == 2 and {one.code for one in found.findings} == {"MC117"}


@pytest.mark.parametrize("url", ["ext::{program}", "ssh://host/path", "{tree}"])
def test_a_missing_object_is_not_fetched(tree, url):
    """A repository that was cloned in part names the programs that fetch the rest."""
    program = tree / "program"
    program.write_text(f"#!/bin/sh\ntouch '{tree.parent / 'run'}'\n")
    program.chmod(0o755)
    settings = {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": url.format(program=program, tree=tree),
        "remote.origin.uploadpack": str(program),
        "core.sshCommand": str(program),
        "protocol.ext.allow": "always",
    }
    for name, value in settings.items():
        git(tree, "config", name, value)
    for path in (tree / ".git/objects").glob("??/*"):
        path.unlink()
    append(tree / LEAF)
    assert check(CheckOptions(root=str(tree), changed_since="HEAD")).exit_code == 2
    assert check(CheckOptions(root=str(tree))).exit_code == 1
    assert not (tree.parent / "run").exists()


@posix
def test_a_git_that_hangs_is_asked_once(tree, monkeypatch):
    os.mkfifo(tree / "pipe")
    git(tree, "config", "include.path", str(tree / "pipe"))
    for model in ("heir", "leaf"):
        append(tree / f"models/{model}/modeling_{model}.py")
    monkeypatch.setattr(work_tree, "SECONDS", 0.5)
    calls, run = [], subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *given, **options: calls.append(given) or run(*given, **options))
    found = check(CheckOptions(root=str(tree)))
    assert [one.code for one in found.findings] == ["MC401", "MC401"]
    assert sum(os.path.basename(command[0][0]) == "git" for command in calls) == 1


@posix
def test_ignore_rules_that_never_end_hide_nothing_and_are_read_once(tree, monkeypatch):
    for name in ("one", "two", "three"):
        shutil.copytree(tree / "models/leaf", tree / f"models/{name}/.hidden/leaf")
    os.mkfifo(tree / "models/.gitignore")
    monkeypatch.setattr(work_tree, "SECONDS", 0.5)
    asked, run = [], subprocess.run
    monkeypatch.setattr(subprocess, "run", lambda *given, **options: asked.append(given[0]) or run(*given, **options))
    found = check(CheckOptions(root=str(tree)))
    assert found.exit_code == 2 and sum(one.code == "MC104" for one in found.findings) == 3
    assert sum("ls-files" in command for command in asked) == 1
