"""A small library in which one model builds on another."""

from __future__ import annotations

import subprocess
from pathlib import Path


HEIR = 'from ..{old}.modeling_{old} import {Old}MLP\n\n\nclass {New}MLP({Old}MLP):\n    pass\n\n\n__all__ = ["{New}MLP"]\n'
MODULAR, NEIGHBOUR, GENERATED = "size/modular_size.py", "base/modeling_base.py", "size/modeling_size.py"
BASE = "from torch import nn\n\n\nclass BaseMLP(nn.Module):\n    def forward(self, x):\n        return x + 1\n"


def add(models: Path, new: str, old: str) -> None:
    (models / new).mkdir(parents=True)
    text = HEIR.format(old=old, new=new, Old=old.title(), New=new.title())
    (models / new / f"modular_{new}.py").write_text(text, encoding="utf-8")


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)
