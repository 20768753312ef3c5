"""Who names the version of the formatter: the table, else ruff's or black's own setting, else the profile."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from modular_converter.settings.load import SettingsError, allows, load_settings, profile_settings


TABLE = "[tool.modular-converter]\n"


def test_the_profile_names_one_for_its_own_formatter() -> None:
    assert profile_settings().formatter_version == "0.14.10"
    assert dataclasses.replace(profile_settings(), formatter="black").formatter_version == ""


@pytest.mark.parametrize(
    ("text", "version", "line"),
    [
        (TABLE, "0.14.10", None),
        (TABLE + 'formatter-version = "0.15.2"\n[tool.ruff]\nrequired-version = "==0.16.0"\n', "0.15.2", 2),
        (TABLE + 'formatter-version = ""\n', "", 2),
        ('[tool.ruff]\nrequired-version = "==0.16.0"\n', "0.16.0", 2),
        ('[tool.ruff]\nrequired-version = "0.16.0rc1"\n', "0.16.0rc1", 2),
        ('[tool.ruff]\nrequired-version = ">= 0.16, <1"\n', ">=0.16,<1", 2),
        ('[tool.ruff]\nrequired-version = ">=0.16rc1"\n', "", 2),
        ('[tool.ruff]\nrequired-version = ">=0.16,"\n', "", 2),
        ("[tool.ruff]\nrequired-version = 16\n", "", 2),
        ('[tool.ruff]\nrequired-version = "==0.16.0; curl x | sh"\n', "", 2),
        (TABLE + 'ruff-config = "profile"\n[tool.ruff]\nrequired-version = "0.16.0"\n', "0.14.10", None),
        (TABLE + 'formatter = "black"\n[tool.ruff]\nrequired-version = "0.16.0"\n', "", None),
        (TABLE + 'formatter = "black"\n[tool.black]\nrequired-version = "24.1.0"\n', "24.1.0", 4),
        (TABLE + 'formatter = "black"\n[tool.black]\nrequired-version = "24"\n', "==24.*", 4),
    ],
)
def test_the_nearest_word_counts(tmp_path: Path, text: str, version: str, line: int | None) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    settings = load_settings(tmp_path)
    assert settings.formatter_version == version
    place = settings.pinned_formatter.place if settings.pinned_formatter else None
    assert (place.line if place else None) == line


def test_a_configuration_that_is_extended_counts_too(tmp_path: Path) -> None:
    (tmp_path / "base.toml").write_text('required-version = "==0.16.1"\n')
    (tmp_path / "ruff.toml").write_text('extend = "base.toml"\n')
    assert load_settings(tmp_path).formatter_version == "0.16.1"


@pytest.mark.parametrize(
    ("requirement", "fitting", "others"),
    [
        ("0.14", ["0.14", "0.14.0"], ["0.14.1", "0.1", "0.14rc1"]),
        ("0.16.0rc1", ["0.16.0rc1"], ["0.16.0", "0.16.0rc2"]),
        (">=0.14,<0.16", ["0.14", "0.14.10", "0.15.99"], ["0.13.9", "0.16", "0.16.0"]),
        ("==24.*", ["24", "24.1.0"], ["25.1", "2.4", "240.1"]),
        ("!=0.14.3", ["0.14.2", "0.14.30"], ["0.14.3", "0.14.3.0"]),
        ("~=0.14.3", ["0.14.3", "0.14.10"], ["0.14.2", "0.15.0"]),
        (">0.9,<=0.10", ["0.9.1", "0.10", "0.10.0"], ["0.9", "0.10.1"]),
    ],
)
def test_a_requirement_allows_the_versions_that_pip_would_install(
    requirement: str, fitting: list[str], others: list[str]
) -> None:
    assert [version for version in (*fitting, *others) if allows(requirement, version)] == fitting
    oracle = pytest.importorskip("packaging.specifiers")
    specifiers = oracle.SpecifierSet(requirement if requirement[0] in "<>=!~" else f"=={requirement}")
    assert [version for version in (*fitting, *others) if version in specifiers] == fitting


@pytest.mark.parametrize("value", ['">=0.14"', '"0.14.10; rm"', '"latest"', "14", '"0.14.10\\n"'])
def test_only_one_exact_version_is_a_version(tmp_path: Path, value: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f"{TABLE}formatter-version = {value}\n")
    with pytest.raises(SettingsError, match="must be one version"):
        load_settings(tmp_path)
