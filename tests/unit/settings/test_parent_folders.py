"""The folders above a folder, and the project among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from modular_converter.settings.disk import project_above, upwards


def test_the_nearest_comes_first_and_the_root_once(tmp_path: Path) -> None:
    found = list(upwards(str(tmp_path / "a" / "b")))
    assert found[:3] == [str(tmp_path / "a" / "b"), str(tmp_path / "a"), str(tmp_path)]
    assert found[-1] == tmp_path.anchor and len(found) == len(set(found))
    assert list(upwards(tmp_path.anchor)) == [tmp_path.anchor]


@pytest.mark.parametrize("mark", ["pyproject.toml", ".git"])
def test_the_nearest_project(tmp_path: Path, mark: str) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    assert project_above(str(inner)) == ""
    (tmp_path / mark).touch()
    assert project_above(str(inner)) == str(tmp_path)
    (inner / mark).touch()
    assert project_above(str(inner)) == str(inner)
