"""Trees of models for the tests of the check: made, changed, committed, and what the command says of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

from click.testing import CliRunner, Result

from modular_converter.check.run import CheckOptions, check
from modular_converter.commands.check import check_command


BASE = "from torch import nn\n\n\nclass BaseMLP(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
TWO_METHODS = """\
from torch import nn


class OldMLP(nn.Module):
    def first(self, x):
        return x + 1

    def second(self, x):
        return x + 2
"""
HEIR = 'from ..{old}.modeling_{old} import {Old}MLP\n\n\nclass {New}MLP({Old}MLP):\n    pass\n\n\n__all__ = ["{New}MLP"]\n'


def git(folder: Path, *arguments: str) -> str:
    options = ("user.name=a", "user.email=a@b", "commit.gpgsign=false", "protocol.file.allow=always")
    command = ["git", "-C", str(folder), *(word for option in options for word in ("-c", option)), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, *, new: bool = False) -> str:
    if new:
        git(folder, "init", "-q", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "a commit", "--allow-empty")
    return git(folder, "rev-parse", "HEAD")


def add(models: Path, new: str, old: str) -> Path:
    path = models / new / f"modular_{new}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEIR.format(old=old, new=new, Old=old.title(), New=new.title()))
    return path


def fix(tree: Path) -> None:
    assert check(CheckOptions(root=str(tree), fix=True)).exit_code == 0


def run(zoo: Path, *arguments: str) -> Result:
    return CliRunner().invoke(check_command, ["--root", str(zoo), *arguments])


def edit(zoo: Path, name: str, old: str, new: str) -> None:
    path = next(zoo.rglob(name))
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
