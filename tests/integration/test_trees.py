"""Trees in a bad state, and hostile ones: a clear message, the right exit code, and nothing is lost or given away."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from modular_converter.commands.check import check_command
from modular_converter.commands.convert import convert_command
from modular_converter.convert.batch import Run
from tests.integration.small_library import BASE, GENERATED, MODULAR, NEIGHBOUR, add, git


pytestmark = pytest.mark.usefixtures("cache")

posix = pytest.mark.skipif(os.name == "nt", reason="links and modes of POSIX")
SECRET = "TOKEN = 'hunter2'\n"


def convert(tree: Path, *arguments: str) -> Result:
    return CliRunner().invoke(convert_command, ["--root", str(tree), *(arguments or ("all",))])


def check(tree: Path, *arguments: str) -> Result:
    return CliRunner().invoke(check_command, ["--root", str(tree), *arguments])


def fix(tree: Path) -> Result:
    return check(tree, "--write")


COMMANDS = {"convert": convert, "check": check, "fix": fix}
EVERY = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)


def make_stale(tree: Path) -> None:
    (tree / "models" / NEIGHBOUR).write_text(BASE.replace("x + 1", "x + 2"))


def files(folder: Path) -> dict[str, bytes]:
    found = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in found}


# Git


def changed(tree: Path, ref: str = "HEAD") -> str:
    result = check(tree, "--changed-since", ref)
    assert result.exit_code in (0, 1), result.output
    return result.stderr


@pytest.mark.parametrize("ref", ["origin/mian", "-x", "--help", "", "HEAD:models", "HEAD..HEAD", "@{u}", "a b"])
def test_a_revision_that_git_does_not_know(tree, ref):
    result = check(tree, "--changed-since", ref)
    assert result.exit_code == 2
    assert f"error MC117 cannot tell what has changed since `{ref}`: git knows no commit" in result.stderr
    assert "git fetch" in result.stderr


def test_no_git_tree_and_no_git(tree, monkeypatch):
    shutil.rmtree(tree / ".git")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tree.parent))
    result = check(tree, "--changed-since", "HEAD")
    assert result.exit_code == 2 and "MC117" in result.stderr and "not a git repository" in result.stderr
    assert check(tree).exit_code == 0
    monkeypatch.setenv("PATH", "")
    result = check(tree, "--changed-since", "HEAD")
    assert result.exit_code == 2 and "MC117" in result.stderr and "git could not be started" in result.stderr


def test_a_dirty_tree_counts_staged_unstaged_untracked_and_removed(tree):
    assert "no modular file is affected" in changed(tree)
    (tree / "models" / MODULAR).write_text((tree / "models" / MODULAR).read_text() + "\n")
    assert "2 modular files" in changed(tree)
    git(tree, "add", "-A")
    assert "2 modular files" in changed(tree)
    git(tree, "reset", "-q", "--hard")
    add(tree / "models", "neu", "base")
    assert "neu/modeling_neu.py:1:1: error MC402" in changed(tree).replace(os.sep, "/")
    git(tree, "clean", "-qfd")
    (tree / "models/größe/modeling_größe.py").unlink()
    assert "größe/modeling_größe.py:1:1: error MC402" in changed(tree).replace(os.sep, "/")


def test_a_detached_head_and_a_name_that_is_not_ascii(tree):
    modular = tree / "models/größe/modular_größe.py"
    modular.write_text(modular.read_text(encoding="utf-8") + "\n", encoding="utf-8")
    git(tree, "commit", "-qam", "zweite Änderung")
    git(tree, "checkout", "-q", "--detach")
    assert "no modular file is affected" in changed(tree)
    assert "1 modular file" in changed(tree, "main~1")


def test_variables_of_an_outer_hook_do_not_lead_git_away(tree, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(other / ".git/objects"))
    make_stale(tree)
    assert "2 modular files" in changed(tree)


# What vanishes in mid-run


@pytest.fixture
def in_mid_run(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Callable[[], object]], None]:
    """Do something between finding and reading files (`before`), or between reading and writing (`after`)."""
    original = Run.convert

    def arrange(moment: str, happens: Callable[[], object]) -> None:
        def patched(self, *arguments, **options):
            if moment == "before":
                happens()
            conversions = original(self, *arguments, **options)
            if moment == "after":
                happens()
            return conversions

        monkeypatch.setattr(Run, "convert", patched)

    return arrange


@pytest.mark.parametrize(
    ("moment", "name", "code", "exit_codes"),
    [
        ("before", MODULAR, "MC103", {"convert": 2, "check": 2, "fix": 2}),
        ("before", NEIGHBOUR, "MC104", {"convert": 2, "check": 2, "fix": 2}),
        ("before", GENERATED, "MC402", {"convert": 0, "check": 1, "fix": 0}),
        ("after", MODULAR, "MC103", {"convert": 2, "check": 1, "fix": 2}),
        ("after", NEIGHBOUR, "", {"convert": 0, "check": 1, "fix": 0}),
        ("after", GENERATED, "MC402", {"convert": 0, "check": 1, "fix": 0}),
        ("after", "size", "MC103", {"convert": 2, "check": 1, "fix": 2}),
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_or_folder_vanishes(tree, in_mid_run, command, moment, name, code, exit_codes):
    make_stale(tree)
    before = files(tree)
    path = tree / "models" / name
    in_mid_run(moment, lambda: shutil.rmtree(path) if path.is_dir() else path.unlink())
    result = COMMANDS[command](tree)
    assert result.exit_code == exit_codes[command], result.output
    assert "MC199" not in result.output
    if exit_codes[command] == 2 or (command == "check" and name == GENERATED):
        assert code in result.output
    lost = {one for one in before if one not in files(tree)}
    assert lost <= {one for one in before if one.startswith(f"models/{name}")}, "no other file is lost"
    if command == "check" or name == MODULAR:
        assert all(before[one] == text for one, text in files(tree).items() if "/größe/" not in one)
    if name == "size":
        assert not path.exists(), "a model that was removed does not come back"


@pytest.mark.parametrize("command", ["convert", "fix"])
def test_what_vanishes_stops_no_other(tree, in_mid_run, command):
    make_stale(tree)
    add(tree / "models", "other", "base")
    in_mid_run("after", lambda: (tree / "models" / MODULAR).unlink())
    result = COMMANDS[command](tree)
    assert result.exit_code == 2 and "modular_size.py:1:1: error MC103" in result.output
    assert "removed during the run" in result.output
    assert "x + 2" in (tree / "models/other/modeling_other.py").read_text()


def test_programs_that_the_repository_configures_are_not_run(tree, tmp_path):
    proof = tmp_path / "executed"
    program = f"touch '{proof}'; cat"
    (tree / ".gitattributes").write_text("*.py filter=x diff=x\n")
    for key in ("filter.x.clean", "filter.x.process", "diff.x.command", "diff.x.textconv", "core.fsmonitor"):
        git(tree, "config", key, program)
    git(tree, "config", "filter.x.required", "true")
    make_stale(tree)
    result = check(tree)
    assert result.exit_code == 1 and "what it is made from has changed" in result.output, result.output
    assert "size" in changed(tree)
    assert not proof.exists()


def test_an_edit_of_a_file_in_the_output_folder_is_a_change(tree):
    (tree / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\noutput-dir = "out"\n')
    assert check(tree, "--write").exit_code == 0
    git(tree, "add", "-A")
    git(tree, "commit", "-qm", "out")
    generated = tree / "out" / GENERATED
    generated.write_text(generated.read_text() + "# by hand\n")
    result = check(tree, "--changed-since", "HEAD")
    assert result.exit_code == 1 and "MC401" in result.output, result.output


def test_an_orphan_in_the_output_folder_and_below_a_folder_given(tree):
    (tree / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\noutput-dir = "out"\n')
    assert check(tree, "--write").exit_code == 0
    (tree / "models" / MODULAR).unlink()
    (tree / "models/größe/modular_größe.py").unlink()
    add(tree / "models", "other", "base")
    result = check(tree, "--write")
    assert result.exit_code == 1 and result.output.count("MC403") == 2, result.output
    assert "out/size" in result.output.replace(os.sep, "/")


@EVERY
def test_a_generated_file_that_is_no_text_is_made_anew(tree, command):
    path = tree / "models" / GENERATED
    right = path.read_bytes()
    path.write_bytes(b"\xff\x00\n")
    result = command(tree)
    assert result.exit_code == (1 if command is check else 0), result.output
    assert path.read_bytes() == (b"\xff\x00\n" if command is check else right)


# The cache


@pytest.mark.parametrize("place", ["", "deeper/still"])
def test_a_cache_folder_that_cannot_be_made_costs_only_time(tree, tmp_path, monkeypatch, place):
    (tmp_path / "file").write_text("precious")
    monkeypatch.setenv("MODULAR_CONVERTER_CACHE", str(tmp_path / "file" / place))
    for arguments in ((), ("--clear-cache",), ("--write",)):
        result = check(tree, *arguments)
        assert result.exit_code == 0, result.output
    assert (tmp_path / "file").read_text() == "precious"


@pytest.mark.parametrize("name", ["click", "rich", "ruff", "watchfiles", "platformdirs"])
def test_nothing_of_the_current_folder_is_imported(tree, name):
    (tree / f"{name}.py").write_text("raise SystemExit('the tree was executed')\n")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "FORCE_COLOR": "1"}
    command = [sys.executable, "-m", "modular_converter", "all"]
    done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "executed" not in done.stderr


@EVERY
def test_two_projects_want_two_runs(tree, tmp_path, command):
    other = tmp_path / "other"
    add(other / "models", "fremd", "base")
    (other / "pyproject.toml").write_text("[tool.modular-converter]\nstrict = true\n")
    both = (str(tree / "models"), str(other / "models"))
    result = command(tree, *both) if command is not fix else check(tree, "--write", *both)
    assert result.exit_code == 2 and "do not hold for" in result.output, result.output


def test_a_change_of_line_ends_is_called_that(tree):
    path = tree / "models" / GENERATED
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    result = check(tree)
    assert result.exit_code == 1 and "only line ends differ" in result.output, result.output
