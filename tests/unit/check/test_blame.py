"""Why a generated file is out of date, as the check says it: what git proves, and no more."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from modular_converter.check import differences
from modular_converter.check.run import CheckOptions, check
from tests.unit.trees import commit, fix, git


def edit(tree: Path, model: str, old: str, new: str, kind: str = "modeling") -> None:
    path = tree / "models" / model / f"{kind}_{model}.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def comment(tree: Path) -> None:
    """A change of `base` that changes nothing of what is made from it."""
    edit(tree, "base", "from torch", "# a note\nfrom torch")


def cause(tree: Path, model: str = "heir") -> str:
    result = check(CheckOptions((model,), root=str(tree)))
    (difference,) = result.differences
    return difference.findings[0].message.partition("; ")[2]


def test_a_committed_hand_edit_stays_one_when_its_sources_change_in_passing(tree):
    edit(tree, "heir", "x + 1", "x + 5")
    commit_of_it = commit(tree)[:8]
    assert cause(tree) == f"it was edited by hand in {commit_of_it}"
    comment(tree)
    commit(tree)
    assert cause(tree) == f"it was edited by hand in {commit_of_it}"


def test_so_does_one_that_is_not_committed(tree):
    edit(tree, "heir", "x + 1", "x + 5")
    comment(tree)
    assert cause(tree) == "it was edited by hand since the last commit, where it was right"


def test_hand_edits_on_top_of_each_other(tree):
    edit(tree, "heir", "x + 1", "x + 5")
    first = commit(tree)[:8]
    edit(tree, "heir", "x + 5", "x + 6")
    assert cause(tree) == f"it was edited by hand in {first}, and again since"
    commit(tree)
    assert cause(tree) == f"it was edited by hand in {first}, and again since"
    edit(tree, "heir", "x + 6", "x + 7")
    assert cause(tree) == f"it was edited by hand in {first}, and again since"


def test_sources_that_go_back_to_what_they_were_are_no_hand_edit(tree):
    edit(tree, "base", "x + 1", "x + 2")
    fix(tree)
    last = commit(tree)[:8]
    edit(tree, "base", "x + 2", "x + 1")
    commit(tree)
    assert cause(tree) == f"what it is made from has changed: modeling_base.py since {last}, which last wrote it"


def test_sources_that_have_changed(tree):
    written = git(tree, "rev-parse", "HEAD")[:8]
    edit(tree, "base", "x + 1", "x + 2")
    assert cause(tree) == "what it is made from has changed: modeling_base.py"
    edit(tree, "heir", "x + 1", "x + 5")
    also = ", and it was itself changed since the last commit"
    assert cause(tree) == f"what it is made from has changed: modeling_base.py{also}"
    git(tree, "checkout", "-q", "models/heir")
    commit(tree)
    assert cause(tree) == f"what it is made from has changed: modeling_base.py since {written}, which last wrote it"


def test_an_heir_of_a_file_that_is_out_of_date(tree):
    edit(tree, "base", "x + 1", "x + 2")
    commit(tree)
    causes = {
        one.path.rpartition("_")[2]: one.findings[0].message for one in check(CheckOptions(root=str(tree))).differences
    }
    assert "what it is made from has changed: modeling_base.py since" in causes["heir.py"]
    assert causes["leaf.py"].endswith("what it is made from is out of date itself: modeling_heir.py")
    edit(tree, "leaf", "pass", "y = 1", kind="modular")
    result = check(CheckOptions(root=str(tree)))
    said = "what it is made from has changed: modular_leaf.py and is out of date itself: modeling_heir.py"
    assert result.differences[1].findings[0].message.endswith(said)


def test_a_file_that_never_was_right(tree):
    edit(tree, "heir", "x + 1", "x + 5")
    edit(tree, "heir", "pass", "y = 1", kind="modular")
    last = commit(tree)[:8]
    assert cause(tree) == f"cannot tell why: it was not right in {last}, which last wrote it"
    edit(tree, "heir", "x + 5", "x + 6")
    assert cause(tree) == "cannot tell why: it has changed since the last commit, and was not right there"


def test_history_that_was_cut_off_proves_nothing(tree, tmp_path):
    edit(tree, "base", "x + 1", "x + 2")
    commit(tree)
    subprocess.run(["git", "clone", "-q", "--depth=1", tree.as_uri(), str(tmp_path / "clone")], check=True)
    assert cause(tmp_path / "clone") == "cannot tell why (git does not know when it was last written)"


@pytest.mark.skipif(os.name == "nt", reason="links of POSIX")
def test_a_link_in_the_place_of_a_file_that_was_right(tree):
    generated = tree / "models/heir/modeling_heir.py"
    generated.with_name("other.py").write_text("x = 1\n")
    generated.unlink()
    generated.symlink_to("other.py")
    assert cause(tree) == "it was edited by hand since the last commit, where it was right"


def test_sources_that_git_knows_nothing_of_are_not_blamed(tree):
    shutil.rmtree(tree / ".git")
    git(tree, "init", "-q", "models/heir")
    last = commit(tree / "models/heir")[:8]
    edit(tree, "base", "x + 1", "x + 2")
    assert cause(tree) == f"cannot tell why: it was not right in {last}, which last wrote it"
    edit(tree, "heir", "pass", "y = 1", kind="modular")
    assert cause(tree) == "what it is made from has changed: modular_heir.py"


def test_each_file_is_asked_for_where_it_lies(tree, tmp_path):
    shutil.copytree(tree / "models/heir", tmp_path / "aaa")
    for path in (tmp_path / "aaa").glob("*.py"):
        text = path.read_text().replace("Heir", "Aaa").replace("heir", "aaa")
        path.with_name(path.name.replace("heir", "aaa")).write_text(text)
        path.unlink()
    git(tmp_path, "init", "-q", "-b", "main", "aaa")
    commit(tmp_path / "aaa")
    git(tree, "submodule", "--quiet", "add", str(tmp_path / "aaa"), "models/aaa")
    fix(tree)
    commit(tree / "models/aaa")
    commit(tree)
    edit(tree, "aaa", "x + 1", "x + 5")
    edit(tree, "leaf", "x + 1", "x + 5")
    by_hand = "it was edited by hand since the last commit, where it was right"
    assert [cause(tree, model) for model in ("aaa", "leaf")] == [by_hand, by_hand]
    found = [one.findings[0].message.partition("; ")[2] for one in check(CheckOptions(root=str(tree))).differences]
    assert found == [by_hand, by_hand]


def test_a_file_is_explained_by_one_that_it_is_made_from_and_circles_end() -> None:
    stale = {path: SimpleNamespace(sources=sources) for path, sources in {"a": "bx", "b": "ca", "c": ""}.items()}
    for cause, is_explained in ((True, True), (False, False)):
        causes = {path: SimpleNamespace(is_by_hand=False, is_in_sources=cause and path == "c") for path in "abc"}
        assert differences._is_explained("a", stale, causes, set()) is is_explained  # type: ignore[arg-type]
