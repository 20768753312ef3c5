"""Conflicts in generated files, resolved by git itself through the driver: merge, rebase, cherry-pick, revert."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from modular_converter.check.run import CheckOptions, check
from modular_converter.commands.subcommands import merge_driver_command
from modular_converter.git import merge_driver
from modular_converter.git.merge_driver import ATTRIBUTES, missing_setup
from tests.unit.trees import TWO_METHODS as OLD
from tests.unit.trees import commit, edit, fix, git, run


NEW = """\
from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):
    def own(self, x):
        return x * 2


__all__ = ["NewMLP"]
"""
NEXT = (
    NEW.replace("old", "new")
    .replace("Old", "New")
    .replace("class NewMLP", "class NextMLP")
    .replace('["NewMLP"]', '["NextMLP"]')
)


@pytest.fixture
def zoo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    texts = {"old/modeling_old.py": OLD, "new/modular_new.py": NEW, "next/modular_next.py": NEXT}
    for name, text in texts.items():
        path = tmp_path / "models" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    fix(tmp_path)
    commit(tmp_path, new=True)
    monkeypatch.chdir(tmp_path)
    assert CliRunner().invoke(merge_driver_command, ["install", "--yes"]).exit_code == 0
    commit(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("answer", "code", "said"), [("", 2, "`--yes`"), ("n\n", 0, "Nothing was written.")])
def test_nothing_is_installed_without_an_answer(zoo: Path, answer: str, code: int, said: str) -> None:
    assert CliRunner().invoke(merge_driver_command, ["uninstall"]).exit_code == 0
    done = CliRunner().invoke(merge_driver_command, ["install"], input=answer)
    assert done.exit_code == code and said in done.output
    assert not (zoo / ".gitattributes").exists() or "modular" not in (zoo / ".gitattributes").read_text()


@pytest.mark.parametrize("command", [["install", "--yes"], ["uninstall"]])
@pytest.mark.parametrize(
    ("place", "said"), [(".gitattributes", "MC113"), (".git/config", "could not lock config file")]
)
def test_a_set_up_that_cannot_be_written_is_told(
    command: list[str], place: str, said: str, zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, content: bytes) -> None:
        raise PermissionError(13, "Permission denied")

    if place == ".gitattributes":
        (zoo / place).write_text((zoo / place).read_text() + "*.md text\n")
        monkeypatch.setattr(merge_driver, "replace_file", refuse)
    else:
        (zoo / ".git/config.lock").touch()
    done = CliRunner().invoke(merge_driver_command, command)
    assert (done.exit_code, said in done.output) == (2, True)


def branch(zoo: Path, name: str, *edits: tuple[str, str, str]) -> str:
    git(zoo, "checkout", "-q", "-b", name, "main")
    for file, old, new in edits:
        edit(zoo / "models", file, old, new)
    fix(zoo)
    return commit(zoo)


RENAMED = ("modular_new.py", "def own(self, x):", "def own(self, y, x):")
THIRD = ("modeling_old.py", "return x + 2", "return x + 2\n\n    def third(self, x):\n        return x + 3")
"""Both change the same place of the generated files."""


def try_git(zoo: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    options = ("user.name=a", "user.email=a@b", "core.editor=true")
    command = ["git", "-C", str(zoo), *(word for option in options for word in ("-c", option)), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("how", ["merge", "rebase", "cherry-pick", "revert"])
def test_conflicts_in_generated_files_alone_are_resolved(how: str, zoo: Path) -> None:
    theirs = branch(zoo, "theirs", RENAMED)
    git(zoo, "checkout", "-q", "-b", "ours", theirs if how == "revert" else "main")
    edit(zoo / "models", *THIRD)
    fix(zoo)
    commit(zoo)
    done = try_git(zoo, how, theirs)
    assert done.returncode == 0, done.stdout + done.stderr
    assert check(CheckOptions(root=str(zoo))).exit_code == 0
    generated = (zoo / "models/new/modeling_new.py").read_text()
    assert "def third" in generated
    assert ("def own(self, y, x)" in generated) == (how != "revert")


def test_without_the_driver_git_leaves_a_conflict(zoo: Path) -> None:
    assert CliRunner().invoke(merge_driver_command, ["uninstall"]).exit_code == 0
    git(zoo, "commit", "-qam", "no driver")
    branch(zoo, "theirs", RENAMED)
    branch(zoo, "ours", THIRD)
    done = try_git(zoo, "merge", "theirs")
    assert done.returncode == 1
    assert "models/new/modeling_new.py" in done.stdout


def test_where_modular_files_conflict_the_generated_file_says_so(zoo: Path) -> None:
    branch(zoo, "theirs", ("modular_new.py", "x * 2", "x * 3"))
    branch(zoo, "ours", ("modular_new.py", "x * 2", "x * 4"))
    done = try_git(zoo, "merge", "theirs")
    assert done.returncode == 1
    first, *rest = (zoo / "models/new/modeling_new.py").read_text().split("\n")
    assert (
        first
        == "# modular-converter: resolve models/new/modular_new.py first, then run `check-modular-conversion --write`"
    )
    assert "x * 4" in "\n".join(rest) and "<<<<" not in "\n".join(rest)
    edit(zoo / "models", "modular_new.py", "<<<<<<< HEAD\n", "")
    text = (zoo / "models/new/modular_new.py").read_text()
    (zoo / "models/new/modular_new.py").write_text(
        text.replace(text[text.index("=======") : text.index(">>>>>>>")], "").replace(">>>>>>> theirs\n", "")
    )
    fix(zoo)
    assert check(CheckOptions(root=str(zoo))).exit_code == 0


def test_the_set_up_is_told_where_a_clone_lacks_it(zoo: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    generated = [str(path) for path in (zoo / "models").rglob("modeling_ne*.py")]
    assert missing_setup(str(zoo), generated) == []
    assert "linguist-generated" in (zoo / ATTRIBUTES).read_text()
    clone = tmp_path_factory.mktemp("clone") / "zoo"
    git(zoo, "clone", "-q", str(zoo), str(clone))
    assert "MC395" in run(clone).stderr
    (finding,) = missing_setup(str(zoo), generated[:1])
    assert "does not name the generated files of today" in finding.message


def test_nothing_is_told_where_it_was_never_set_up(tmp_path: Path) -> None:
    commit(tmp_path, new=True)
    assert missing_setup(str(tmp_path), []) == []


def test_other_attributes_stay(zoo: Path) -> None:
    before = (zoo / ATTRIBUTES).read_text()
    (zoo / ATTRIBUTES).write_text("*.png binary\n" + before + "*.md text\n")
    CliRunner().invoke(merge_driver_command, ["uninstall"])
    assert (zoo / ATTRIBUTES).read_text() == "*.png binary\n*.md text\n"


def test_where_a_flat_neighbour_conflicts_the_generated_file_says_so(zoo: Path) -> None:
    branch(zoo, "theirs", ("modeling_old.py", "x + 2", "x + 3"))
    branch(zoo, "ours", ("modeling_old.py", "x + 2", "x + 4"))
    assert try_git(zoo, "merge", "theirs").returncode == 1
    first = (zoo / "models/new/modeling_new.py").read_text().split("\n")[0]
    assert first.startswith("# modular-converter: resolve models/old/modeling_old.py first")
