"""A small library with a source of copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.marks.test_marks import SOURCE, write


@pytest.fixture
def library(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text('[tool.modular-converter]\nruff-config = "profile"\n')
    write(tmp_path, "base", SOURCE)
    return tmp_path
