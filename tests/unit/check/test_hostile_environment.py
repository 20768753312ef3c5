"""Variables of the environment, programs and folders of others: the verdict stays, and nothing of the tree runs."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from modular_converter.check.cache import store
from modular_converter.check.run import CheckOptions, check
from tests.unit.trees import commit, edit, git


pytestmark = pytest.mark.skipif(os.name == "nt", reason="pipes, links and modes of POSIX")
COMMAND = "from modular_converter.commands.check import main; main()"


def run(tree: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, with further variables."""
    command = [sys.executable, "-c", COMMAND, "--root", str(tree), *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("folder", ["", ".", "models", "{tree}", "{tree}/models/..", "{link}"])
def test_no_git_of_the_tree_is_run(tree, tmp_path, monkeypatch, folder):
    mark = tmp_path / "run"
    for place in (tree, tree / "models"):
        (place / "git").write_text(f"#!/bin/sh\ntouch '{mark}'\nexec /usr/bin/git \"$@\"\n")
        (place / "git").chmod(0o755)
    (tmp_path / "link").symlink_to(tree)
    first = folder.format(tree=tree, link=tmp_path / "link")
    monkeypatch.setenv("PATH", os.pathsep.join([first, os.environ["PATH"]]))
    monkeypatch.chdir(tree)
    edit(tree, "modeling_leaf.py", "x + 1", "x + 2")
    assert check(CheckOptions(root=str(tree), changed_since="HEAD")).exit_code == 1
    assert not mark.exists()


VARIABLES = {
    "GIT_DIR": "/nowhere",
    "GIT_INDEX_FILE": "/nowhere",
    "GIT_WORK_TREE": "/",
    "GIT_OBJECT_DIRECTORY": "/nowhere",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES": "/nowhere",
    "GIT_GRAFT_FILE": "/dev/zero",
    "GIT_SHALLOW_FILE": "/dev/zero",
    "GIT_REPLACE_REF_BASE": "refs/heads/",
    "GIT_NAMESPACE": "x",
    "GIT_GLOB_PATHSPECS": "1",
    "GIT_ICASE_PATHSPECS": "1",
    "GIT_ATTR_SOURCE": "nothing",
    "GIT_DEFAULT_HASH": "sha256",
    "GIT_EXTERNAL_DIFF": "/nowhere",
    "GIT_TRACE": "{tmp}/trace",
    "GIT_REDIRECT_STDOUT": "{tmp}/trace",
    "RUFF_OUTPUT_FILE": "{tmp}/trace",
    "RUFF_OUTPUT_FORMAT": "github",
    "RUFF_CONFIG": "/nowhere",
    "RUFF_CACHE_DIR": "{tree}/models",
    "BLACK_CACHE_DIR": "{tree}/models",
    "COLUMNS": "1",
    "FORCE_COLOR": "1",
    "NO_COLOR": "1",
    "TERM": "dumb",
    "LC_ALL": "C",
    "PYTHONWARNINGS": "error",
    "PYTHONDEVMODE": "1",
    "PYTHONOPTIMIZE": "2",
    "PYTHONUTF8": "0",
    "PYTHONIOENCODING": "ascii",
    "PYTHONHASHSEED": "1",
    "SOURCE_DATE_EPOCH": "0",
    "TMPDIR": "{tree}/models",
    "XDG_CACHE_HOME": "relative",
}
"""All of them at once: none may change the verdict or make a file."""


def test_variables_change_no_verdict_and_make_no_file(tree, tmp_path):
    edit(tree, "modeling_base.py", "    def forward", '    pattern = "\\d ö"\n\n    def forward')
    before = sorted(tree.rglob("*.py"))
    for arguments, exit_code in ((("--changed-since", "HEAD"), 1), (("--write",), 0), (("--no-cache",), 0)):
        variables = {name: value.format(tmp=tmp_path, tree=tree) for name, value in VARIABLES.items()}
        done = run(tree, *arguments, **variables)
        assert done.returncode == exit_code, done.stderr
    assert sorted(tree.rglob("*.py")) == before and not (tmp_path / "trace").exists()


@pytest.mark.parametrize("kind", ["a file", "a pipe", "a loop", "no rights", "a device", "too long", "a link"])
def test_no_folder_for_the_cache_changes_the_verdict(tree, tmp_path, kind):
    place = tmp_path / "cache"
    match kind:
        case "a file":
            place.write_text("")
        case "a pipe":
            os.mkfifo(place)
        case "a loop":
            place.symlink_to("cache")
        case "no rights":
            place.mkdir(mode=0)
        case "a device":
            place = Path("/dev/null")
        case "too long":
            place = tmp_path / ("x" * 300)
        case "a link":
            place.symlink_to(tmp_path / "other")
    for _ in range(2):
        assert check(CheckOptions(root=str(tree), cache=str(place))).exit_code == 0
    edit(tree, "modeling_leaf.py", "x + 1", "x + 2")
    assert check(CheckOptions(root=str(tree), cache=str(place))).exit_code == 1


@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize(("owner", "mode", "exit_code"), [(0, 0o600, 0), (12345, 0o600, 1), (0, 0o666, 1)])
def test_an_entry_that_others_can_have_written_is_not_believed(tree, tmp_path, owner, mode, exit_code):
    """The entry says that a stale file is current. One in our own name is believed."""
    cache, path = tmp_path / "cache", tree / "models/leaf/modeling_leaf.py"
    assert check(CheckOptions(root=str(tree), cache=str(cache))).exit_code == 0
    right = store.digest(path.read_bytes())
    edit(tree, path.name, "x + 1", "x + 2")
    for entry in cache.glob("*.json"):
        forged = entry.read_bytes()[65:].replace(right.encode(), store.digest(path.read_bytes()).encode())
        entry.write_bytes(store.digest(forged).encode() + b"\n" + forged)
        os.chown(entry, owner, -1)
        entry.chmod(mode)
    assert check(CheckOptions(root=str(tree), cache=str(cache))).exit_code == exit_code


def test_a_work_tree_of_another_repository_is_checked_as_itself(tree, tmp_path):
    other = tmp_path / "other"
    git(tree, "worktree", "add", "-q", str(other))
    assert check(CheckOptions(root=str(other), changed_since="HEAD")).exit_code == 0
    edit(other, "modeling_leaf.py", "x + 1", "x + 2")
    assert check(CheckOptions(root=str(other), changed_since="HEAD")).exit_code == 1


def test_a_file_in_place_of_the_repository_that_leads_to_another_one_hides_nothing(tree, tmp_path):
    """The other repository has committed the stale file."""
    edit(tree, "modeling_leaf.py", "x + 1", "x + 2")
    shutil.copytree(tree, tmp_path / "other")
    commit(tmp_path / "other")
    shutil.rmtree(tree / ".git")
    (tree / ".git").write_text(f"gitdir: {tmp_path}/other/.git\n")
    assert check(CheckOptions(root=str(tree))).exit_code == 1


def test_borrowed_objects_and_grafted_histories_hide_nothing(tree, tmp_path):
    shutil.copytree(tree, tmp_path / "other")
    shutil.rmtree(tree / ".git/objects")
    (tree / ".git/objects/info").mkdir(parents=True)
    (tree / ".git/objects/info/alternates").write_text(f"{tmp_path}/other/.git/objects\n")
    head = git(tree, "rev-parse", "HEAD")
    (tree / ".git/info").mkdir(exist_ok=True)
    (tree / ".git/info/grafts").write_text(f"{head} {head}\n")
    (tree / ".git/shallow").write_text(f"{head}\n")
    edit(tree, "modeling_leaf.py", "x + 1", "x + 2")
    for since in (None, "HEAD"):
        assert check(CheckOptions(root=str(tree), changed_since=since)).exit_code == 1


TABLE = b"[tool.modular-converter]\n"


@pytest.mark.parametrize(
    ("text", "exit_code"),
    [(b"", 0), (b"\r\n", 0), (TABLE.replace(b"\n", b"\r\n"), 0), (b"\xef\xbb\xbf" + TABLE, 2), (TABLE * 2, 2)],
    ids=["empty", "a line", "CRLF", "BOM", "twice"],
)
def test_settings_that_say_nothing_change_nothing_and_those_that_are_no_toml_are_errors(tree, text, exit_code):
    (tree / "pyproject.toml").write_bytes(text)
    assert check(CheckOptions(root=str(tree))).exit_code == exit_code


@pytest.mark.parametrize("thing", ["file", "pipe", "link", "device"])
def test_a_thing_in_place_of_the_folder_of_a_model_stops_no_other(tree, thing):
    edit(tree, "modeling_heir.py", "x + 1", "x + 2")
    place = tree / "models/leaf"
    shutil.rmtree(place)
    match thing:
        case "file":
            place.write_text("")
        case "pipe":
            os.mkfifo(place)
        case "link":
            place.symlink_to("leaf")
        case "device":
            os.mknod(place, stat.S_IFCHR | 0o600, os.makedev(1, 5)) if os.geteuid() == 0 else place.write_text("")
    found = check(CheckOptions(root=str(tree)))
    assert [one.code for one in found.findings] == ["MC401"]


def test_checks_and_writers_at_once_agree_in_the_end(tree, tmp_path):
    edit(tree, "modeling_base.py", "x + 1", "x + 3")
    command = [sys.executable, "-c", COMMAND, "--root", str(tree)]
    environment = {**os.environ, "MODULAR_CONVERTER_CACHE": str(tmp_path / "cache")}
    writers = [subprocess.Popen([*command, *more], env=environment) for more in (["--write"], [], ["--write"])]
    assert [one.wait() for one in writers][::2] == [0, 0]
    for cache in (str(tmp_path / "cache"), None):
        assert check(CheckOptions(root=str(tree), cache=cache)).exit_code == 0
    assert not [path for path in tree.rglob("*") if "modular-tmp" in path.name]
