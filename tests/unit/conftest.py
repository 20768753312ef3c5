"""A tree of models for the tests of the check."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from modular_converter.check import CheckOptions, check


ROOT = Path(__file__).parents[2]


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture(scope="session")
def current(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of our models, made current and committed, under a name that is not plain."""
    root = tmp_path_factory.mktemp("zoo") / "mödels of ours"
    shutil.copytree(ROOT / "models", root / "models", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    check(CheckOptions(root=str(root), fix=True))
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


@pytest.fixture
def zoo(current: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(current, tmp_path / current.name))
