"""What differs from a commit, as git itself tells it."""

from __future__ import annotations

import os

import pytest

from modular_converter.git.work_tree import GitError, blob_name, open_repository
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


@pytest.mark.parametrize(("kind", "digits"), [("sha1", 40), ("sha256", 64)])
def test_contents_have_the_names_that_git_gives_them(tmp_path, kind, digits):
    (tmp_path / "model.py").write_text("x = 1\n")
    git(tmp_path, "init", "-q", f"--object-format={kind}")
    name = git(tmp_path, "hash-object", "model.py").strip()
    assert blob_name(b"x = 1\n", digits) == name and len(name) == digits


def test_what_a_commit_has_changed_and_names_that_are_no_commits(tmp_path):
    git(tmp_path, "init", "-q")
    for name in ("old.py", "new.py"):
        (tmp_path / name).write_text("x = 1\n")
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-qm", name)
    repository = open_repository(str(tmp_path))
    changed = [repository.changed_in(repository.commit(ref)) for ref in ("HEAD", "HEAD~1")]
    assert changed == [{str(tmp_path / "new.py")}, {str(tmp_path / "old.py")}]
    for ref, said in (("HEAD\0", "no commit has a NUL character"), ("HEAD~2", "git knows no commit `HEAD~2`")):
        with pytest.raises(GitError, match=said):
            repository.commit(ref)


def test_the_texts_of_a_commit_are_its_own_whatever_stands_in_their_place(tmp_path):
    for name in ("same", "edited", "gone", "linked", "piped"):
        (tmp_path / f"{name}.py").write_text(f"{name} = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-qm", "all")
    (tmp_path / "edited.py").write_text("edited = 2\n")
    for name in ("gone", "linked", "piped"):
        (tmp_path / f"{name}.py").unlink()
    (tmp_path / "linked.py").symlink_to("same.py")
    os.mkfifo(tmp_path / "piped.py")
    repository = open_repository(str(tmp_path))
    texts = dict(repository.texts(repository.commit("HEAD"), "", ".py", 1000))
    names = ("edited", "gone", "linked", "piped", "same")
    assert texts == {f"{name}.py": f"{name} = 1\n".encode() for name in names}
