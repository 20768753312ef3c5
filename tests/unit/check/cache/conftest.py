"""A small library with two heirs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from modular_converter.check.run import CheckOptions, check
from tests.unit.check.cache.test_cache import BASE, HEIR


@pytest.fixture(scope="session")
def _two_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("session") / "tree"
    for old, new in (("base", "first"), ("first", "second")):
        (root / "models" / new).mkdir(parents=True)
        text = HEIR.format(old=old, new=new, Old=old.title(), New=new.title())
        (root / "models" / new / f"modular_{new}.py").write_text(text)
    (root / "models/base").mkdir()
    (root / "models/base/modeling_base.py").write_text(BASE)
    (root / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    assert check(CheckOptions(root=str(root), fix=True)).exit_code == 0
    return root


@pytest.fixture
def tree(_two_models: Path, tmp_path: Path) -> Path:
    """Two models, one on top of the other, current on disk."""
    return Path(shutil.copytree(_two_models, tmp_path / "tree"))
