"""The tutorials do what they say: their files are written, their commands run, and what they show is printed.

`<!-- file: PATH -->` above a block is a file to write, `<!-- replace in PATH -->` with the next `<!-- by -->` an edit,
`<!-- shown: PATH -->` a part of a file. In a `console` block each line `$ COMMAND` is run; the lines below are among
those that it prints, where `…` stands for anything. `# exit code N` behind a command is the code that it ends with.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?:^<!-- (.+?) -->\n)?^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
EXIT_CODE = re.compile(r"  # exit code (\d+)$")


def run(command: str, folder: Path) -> str:
    """Run a command of a page in a shell, with the programs of this environment; return what it prints."""
    expected = EXIT_CODE.search(command)
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]]),
        "MODULAR_CONVERTER_CACHE": str(folder / "cache"),
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    done = subprocess.run(
        EXIT_CODE.sub("", command), shell=True, cwd=folder, env=environment, capture_output=True, text=True
    )
    printed = done.stdout + done.stderr
    assert done.returncode == int(expected[1] if expected else 0), f"{command}\n{printed}"
    return printed


def steps(block: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a `console` block, each with the lines below it."""
    first, *rest = re.split(r"^\$ ", block, flags=re.MULTILINE)
    assert not first
    for step in rest:
        command, *shown = step.splitlines()
        yield command, shown


def is_shown(line: str, printed: str) -> bool:
    """Whether one of the printed lines is this line, in which `…` stands for anything."""
    pattern = ".*".join(map(re.escape, line.split("…")))
    return any(re.fullmatch(pattern, one) for one in printed.splitlines())


def follow(page: str, folder: Path) -> int:
    """Do what a page says; return the number of its commands."""
    commands, edited, old = 0, folder, ""
    for comment, language, text in BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8")):
        role, _, name = comment.partition(": ")
        if role == "file":
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text, encoding="utf-8")
        elif role.startswith("replace in "):
            edited, old = folder / role.removeprefix("replace in "), text
        elif role == "by":
            before = edited.read_text(encoding="utf-8")
            assert before.count(old) == 1
            edited.write_text(before.replace(old, text), encoding="utf-8")
        elif role == "shown":
            assert text in (folder / name).read_text(encoding="utf-8")
        elif language == "console":
            for command, shown in steps(text):
                printed = run(command, folder)
                missing = [line for line in shown if not is_shown(line, printed)]
                assert not missing, f"{command} does not print\n" + "\n".join(missing) + f"\nbut\n{printed}"
                commands += 1
    return commands


def test_a_first_model(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    shutil.copytree(ROOT / "models", tmp_path / "models", ignore=shutil.ignore_patterns("__pycache__"))
    assert follow("tutorials/first-model.md", tmp_path) == 8


@pytest.mark.slow
def test_a_first_parallelize(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    assert follow("tutorials/first-parallelize.md", tmp_path) == 1


@pytest.mark.slow
def test_parallelize_in_a_notebook() -> None:
    pytest.importorskip("torch")
    nbclient = pytest.importorskip("nbclient", reason="extra dev")
    import nbformat

    notebook = nbformat.read(ROOT / "docs/tutorials/parallelize.ipynb", as_version=4)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    nbclient.NotebookClient(notebook, timeout=300).execute(env=environment)
    printed = "".join(one.get("text", "") for cell in notebook.cells for one in cell.get("outputs", ()))
    assert (
        "the same: True" in printed and "whole again: True" in printed and "of the weights on each device" in printed
    )
