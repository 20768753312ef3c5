"""The notice at the top of a generated file tells the path in the source repository."""

from __future__ import annotations

import dataclasses
import pathlib

from modular_converter.files.write import banner, is_generated, source_path
from modular_converter.settings.load import profile_settings


def test_of_an_installed_package() -> None:
    path = str(pathlib.Path("any", "transformers", "models", "new", "modular_new.py"))
    assert source_path(path, profile_settings()) == "src/transformers/models/new/modular_new.py"


def test_a_path_stands_on_one_line_with_what_cannot_be_shown_escaped() -> None:
    path = str(pathlib.Path("any", "transformers", "models", "a\nb", "modular_a\x85.py"))
    assert source_path(path, profile_settings()) == r"src/transformers/models/a\nb/modular_a\x85.py"


def test_of_a_project(tmp_path: pathlib.Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    path = tmp_path / "src" / "models" / "new" / "modular_new.py"
    assert (
        source_path(str(path), dataclasses.replace(profile_settings(), banner_root=""))
        == "src/models/new/modular_new.py"
    )


def test_a_banner_is_recognised() -> None:
    path = str(pathlib.Path("any", "transformers", "models", "new", "modular_new.py"))
    text = banner(path, profile_settings())
    assert is_generated(text + "x = 1\n") == "src/transformers/models/new/modular_new.py"
    assert is_generated("x = 1\n") == ""
    assert all(line.startswith("#") for line in text.splitlines())


def test_a_folders_name_does_not_break_out_of_the_banner(tmp_path: pathlib.Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    path = str(tmp_path / "new\nimport os  # \u2028" / "modular_new.py")
    text = banner(path, dataclasses.replace(profile_settings(), banner_root=""))
    assert all(line.startswith("#") for line in text.splitlines())
    assert is_generated(text) == "new\\nimport os  # \\u2028/modular_new.py"
