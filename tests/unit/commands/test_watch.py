"""`modular-convert --watch`, as a real process over real files: what a save leads to, and that nothing ends it."""

from __future__ import annotations

import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from modular_converter.commands.check import check_command
from modular_converter.commands.convert import convert_command
from modular_converter.commands.watch import roots


pytest.importorskip("watchfiles")
pytestmark = pytest.mark.skipif(os.name == "nt", reason="it is stopped and ended with POSIX signals")

ROOT = Path(__file__).parents[3]
SECONDS = 300
"""How long a line may take on a machine that is busy."""
TREE = "ein Wäldchen"
BASE = "from torch import nn\n\n\nclass BaseMLP(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
HEIR = 'from ..{old}.modeling_{old} import {Old}MLP\n\n\nclass {New}MLP({Old}MLP):\n    pass\n\n\n__all__ = ["{New}MLP"]\n'


def add(models: Path, new: str, old: str) -> Path:
    path = models / new / f"modular_{new}.py"
    path.parent.mkdir(parents=True)
    path.write_text(HEIR.format(old=old, new=new, Old=old.title(), New=new.title()))
    return path


def save(path: Path, text: str) -> None:
    """Write as editors do, so that the file is whole at every moment and changes once."""
    temporary = next(folder for folder in path.parents if folder.name == TREE) / "temporary"
    temporary.write_text(text)
    temporary.replace(path)


class Watched:
    """A watching process, and what it prints."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "modular_converter", "--watch", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self.process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._lines.put(line.rstrip("\n"))

    def line(self) -> str:
        """The next line, less the time and the seconds."""
        text = self._lines.get(timeout=SECONDS)
        assert re.match(r"\d\d:\d\d:\d\d  ", text), text
        return re.sub(r", \d+\.\d\d s$", "", text[10:])

    def until(self, part: str) -> str:
        """The next line that holds this, where what comes before depends on when folders are looked at."""
        while part not in (line := self.line()):
            pass
        return line

    def end(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(SECONDS)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two models, one on top of the other, in a folder whose name is not plain."""
    root = tmp_path / TREE
    models = root / "models"
    add(models, "first", "base")
    add(models, "second", "first")
    (models / "base").mkdir()
    (models / "base/modeling_base.py").write_text(BASE)
    (root / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    return root


@pytest.fixture
def watched(tree: Path) -> Iterator[Watched]:
    assert CliRunner().invoke(convert_command, ["--root", str(tree), "all"]).exit_code == 0
    assert CliRunner().invoke(check_command, [str(tree / "models")]).exit_code == 0, "the start is read from the cache"
    found = Watched(tree)
    try:
        assert found.line() == "start: 2 modular files up to date"
        assert found.line() == "watching 2 modular files, Ctrl-C ends"
        yield found
        assert found.end() == 0
    finally:
        found.process.kill()
        found.process.wait()


def test_new_files_are_looked_for_where_the_arguments_would_find_them(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    models = str(tree / "models")
    given = ("models/*/modular_*.py", "models/first", "models/second/modular_second.py", "all", "first")
    folders = [models, f"{models}/first", f"{models}/second", models, models]
    assert [*roots(given, models)] == folders and [*roots(("all",), None)] == []


def test_a_saved_neighbour_reaches_all_its_heirs_and_own_writes_reach_none(tree, watched):
    base = tree / "models/base/modeling_base.py"
    for number in (2, 3):
        save(base, BASE.replace("x + 1", f"x + {number}"))
        written = "models/first/modeling_first.py, models/second/modeling_second.py"
        assert watched.line() == f"models/base/modeling_base.py saved: wrote {written}"
        assert f"x + {number}" in (tree / "models/second/modeling_second.py").read_text()
    os.utime(tree / "models/second/modular_second.py")
    assert watched.line() == "models/second/modular_second.py saved: 1 modular file up to date"


def test_a_syntax_error_in_mid_edit_costs_nothing(tree, watched):
    modular, generated = tree / "models/first/modular_first.py", tree / "models/first/modeling_first.py"
    text, before = modular.read_text(), generated.read_bytes()
    save(modular, text + "def (:\n")
    line = watched.until("MC101")
    assert "models/first/modular_first.py saved: models/first/modular_first.py:9:5 MC101 this is not valid" in line
    assert generated.read_bytes() == before
    save(modular, text.replace("    pass", "    size = 3"))
    assert watched.until("wrote").endswith("wrote models/first/modeling_first.py, models/second/modeling_second.py")
    assert "size = 3" in (tree / "models/second/modeling_second.py").read_text()


def test_editors_rename_people_remove_and_folders_come_and_go(tree, watched):
    modular = tree / "models/second/modular_second.py"
    save(modular, modular.read_text().replace("    pass", "    size = 4"))
    assert watched.line() == "models/second/modular_second.py saved: wrote models/second/modeling_second.py"
    (tree / "models/second/modeling_second.py").unlink()
    removed = "models/second/modeling_second.py removed: wrote models/second/modeling_second.py"
    assert watched.line() == removed
    add(tree / "elsewhere", "third", "second")
    (tree / "elsewhere/third").rename(tree / "models/third")
    assert watched.line() == "models/third/modular_third.py saved: wrote models/third/modeling_third.py"
    shutil.rmtree(tree / "models/base")
    assert "`..base.modeling_base` does not exist" in watched.until("MC104")
    (tree / "models/base").mkdir()
    save(tree / "models/base/modeling_base.py", BASE.replace("x + 1", "x + 9"))
    watched.until("modeling_third.py")
    assert "x + 9" in (tree / "models/third/modeling_third.py").read_text()


def test_what_is_saved_together_is_one_pass(tree, watched):
    watched.process.send_signal(signal.SIGSTOP)
    for name in ("first", "second"):
        modular = tree / f"models/{name}/modular_{name}.py"
        save(modular, modular.read_text().replace("    pass", f"    {name} = 5"))
    watched.process.send_signal(signal.SIGCONT)
    assert watched.line() == (
        "models/first/modular_first.py, models/second/modular_second.py saved: "
        "wrote models/first/modeling_first.py, models/second/modeling_second.py"
    )
    watched.process.send_signal(signal.SIGSTOP)
    for name in ("first", "second"):
        save(tree / f"models/{name}/modular_{name}.py", "def (:\n")
    watched.process.send_signal(signal.SIGCONT)
    assert "; 1 more error" in watched.until("MC101")


def test_settings_are_followed_and_a_mistake_in_them_is_survived(tree, watched):
    settings = tree / "pyproject.toml"
    text = settings.read_text()
    save(settings, text + "wrokers = 3\n")
    assert watched.line() == "pyproject.toml saved: pyproject.toml:3:1 MC116 unknown setting `wrokers`"
    save(settings, text + 'output-dir = "out"\n')
    assert (
        watched.until("wrote")
        == "pyproject.toml saved: wrote out/first/modeling_first.py, out/second/modeling_second.py"
    )


def test_the_watched_folder_itself_may_go_and_come_again(tree, watched):
    (tree / "models").rename(tree / "away")
    assert "no folder of models found" in watched.line()
    save(tree / "away/base/modeling_base.py", BASE.replace("x + 1", "x + 7"))
    (tree / "away").rename(tree / "models")
    watched.until("wrote models/first/modeling_first.py, models/second/modeling_second.py")
    watched.until("watching 2 modular files")
    base = tree / "models/base/modeling_base.py"
    save(base, BASE.replace("x + 1", "x + 8"))
    assert watched.until("modeling_base.py saved").endswith("models/second/modeling_second.py")


def test_only_the_files_that_are_named_are_converted_and_a_quiet_one_speaks_of_errors_alone(tree):
    found = Watched(tree, "--quiet", "models/first/modular_first.py")
    try:
        generated = tree / "models/first/modeling_first.py"
        save(tree / "models/base/modeling_base.py", BASE.replace("x + 1", "x +"))
        assert "MC101" in found.line()
        save(tree / "models/base/modeling_base.py", BASE.replace("x + 1", "x + 6"))
        save(tree / "models/first/modular_first.py", "from ..base.modeling_bsae import BaseMLP\n")
        assert "MC104" in found.until("MC104")
        assert found.end() == 0
        assert not (tree / "models/second/modeling_second.py").exists()
        assert not generated.exists() or "x + 6" in generated.read_text()
    finally:
        found.process.kill()
        found.process.wait()


def test_a_file_that_no_save_affects_is_left_as_it_is(tree):
    """Not at the start, and not when another model is saved: only when something that it is made from is."""
    assert CliRunner().invoke(convert_command, ["--root", str(tree), "all"]).exit_code == 0
    add(tree / "models", "third", "base")
    stale = tree / "models/first/modeling_first.py"
    stale.write_text(stale.read_text() + "# of somebody else\n")
    before = stale.read_bytes()
    found = Watched(tree)
    try:
        left = "models/first/modeling_first.py, models/third/modeling_third.py"
        assert found.line() == f"start: left as they are, though out of date: {left}"
        assert found.line() == "watching 3 modular files, Ctrl-C ends"
        third = tree / "models/third/modular_third.py"
        save(third, third.read_text().replace("    pass", "    size = 3"))
        assert found.line() == "models/third/modular_third.py saved: wrote models/third/modeling_third.py"
        assert stale.read_bytes() == before
        save(tree / "models/base/modeling_base.py", BASE.replace("x + 1", "x + 5"))
        assert "wrote models/first/modeling_first.py" in found.line()
        assert found.end() == 0
    finally:
        found.process.kill()
        found.process.wait()


def test_files_that_are_named_are_written_at_the_start(tree):
    found = Watched(tree, "models/first/modular_first.py")
    try:
        assert found.until("start") == "start: wrote models/first/modeling_first.py"
        assert not (tree / "models/second/modeling_second.py").exists()
        assert found.end() == 0
    finally:
        found.process.kill()
        found.process.wait()


def call(*arguments: str):
    return CliRunner().invoke(convert_command, ["--watch", *arguments])


def test_a_missing_watchfiles_is_named_with_the_extra_to_install(tree, monkeypatch):
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    result = call("--root", str(tree))
    assert result.exit_code == 2
    assert "pip install watchfiles" in result.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("no_such_model",), "MC111"),
        (("--diff",), "cannot be combined with --fix, --diff"),
        (("--fix",), "cannot be combined with --fix"),
        (("--format", "json"), "one line for each change"),
        (("--package", "transformers", "olmo2"), "with `--output-dir DIR`"),
        (("--package", "transformers", "--output-dir", "out", "olmo2"), "nothing to watch"),
    ],
)
def test_what_cannot_be_watched_is_an_error_at_once(tree, monkeypatch, arguments, said):
    monkeypatch.chdir(tree)
    result = call(*arguments)
    assert result.exit_code == 2 and said in result.output
