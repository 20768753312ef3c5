"""A folder for temporary files in which a test can look."""

from __future__ import annotations

import pathlib
import tempfile

import pytest


@pytest.fixture
def private_temporary_folder(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder
