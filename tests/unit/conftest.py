"""A tree of models for the tests of the check."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from modular_converter.convert import batch
from tests.unit.trees import BASE, add, commit, fix


ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _convert_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The few files of a test are converted in its own process: with torch imported, as in a run of all tests, a fork takes
    longer than they do. `convert/test_batch.py` compares processes with one, and `tests/integration` starts them."""
    monkeypatch.setattr(batch, "ITEMS_PER_PROCESS", {"fork": 100, "spawn": 100})


@pytest.fixture(scope="session")
def current(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of our models, made current and committed, under a name that is not plain."""
    root = tmp_path_factory.mktemp("zoo") / "mödels of ours"
    shutil.copytree(ROOT / "models", root / "models", ignore=shutil.ignore_patterns("__pycache__"))
    (root / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    fix(root)
    commit(root, new=True)
    return root


@pytest.fixture
def zoo(current: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(current, tmp_path / current.name))


@pytest.fixture(scope="session")
def _tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("session") / "tree"
    add(root / "models", "heir", "base")
    add(root / "models", "leaf", "heir")
    (root / "models/base").mkdir()
    (root / "models/base/modeling_base.py").write_text(BASE)
    (root / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    fix(root)
    commit(root, new=True)
    return root


@pytest.fixture
def tree(_tree: Path, tmp_path: Path) -> Path:
    """`heir` builds on `base`, `leaf` on `heir`; all is current and committed."""
    return Path(shutil.copytree(_tree, tmp_path / "tree"))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of this test's own."""
    monkeypatch.setenv("MODULAR_CONVERTER_CACHE", str(tmp_path / "cache"))
