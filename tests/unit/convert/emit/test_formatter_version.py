"""Which ruff runs, and what is said of one of another version."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from modular_converter.convert.emit.format import format_files
from modular_converter.convert.emit.formatters import (
    EDGE_BYTES,
    environment,
    find_ruff,
    formatter_stamp,
    load_formatter,
    own_ruff,
    program_stamp,
    ruff_version,
    wrong_version,
    wrong_versions,
)
from modular_converter.files.read import program_on_path
from modular_converter.findings import ConversionError, Location
from modular_converter.settings.load import load_settings, profile_settings
from modular_converter.settings.values import PinnedFormatter, Settings
from tests.unit.formatters import ruff_in, set_own


pytestmark = pytest.mark.skipif(os.name == "nt", reason="a shell script stands in for ruff")
OTHER = "99.1.0"


def test_the_real_ruff_has_the_version_of_the_profile() -> None:
    told = subprocess.check_output([own_ruff(), "--version"], text=True)
    assert told.split() == ["ruff", ruff_version(own_ruff())]
    assert wrong_version(profile_settings()) is None


def test_each_formatter_tells_its_version() -> None:
    ruff, black, none = map(load_formatter, ("ruff", "black", "none"))
    assert ruff.version() == ruff_version(own_ruff())
    assert black.version() == metadata.version("black") and none.version() == ""


def test_a_formatter_that_is_missing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "black", None)
    settings = dataclasses.replace(profile_settings(), formatter="black")
    for ask in (
        load_formatter("black").version,
        lambda: formatter_stamp(settings),
        lambda: format_files({"a.py": ""}, settings),
    ):
        with pytest.raises(ConversionError, match="MC115"):
            ask()


def test_a_program_that_cannot_be_started_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ruff").write_text("no program")
    (tmp_path / "ruff").chmod(0o700)
    set_own(monkeypatch, tmp_path / "ruff")
    settings = dataclasses.replace(profile_settings(), pinned_formatter=None)
    with pytest.raises(ConversionError, match=r"MC115.*could not be started: \w"):
        format_files({"a.py": "x = 1\n"}, settings)
    with pytest.raises(ConversionError, match="MC115.*tells no version"):
        wrong_version(profile_settings())


def test_another_version_is_one_error_and_formats_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_own(monkeypatch, ruff_in(tmp_path / "bin", OTHER))
    monkeypatch.setenv("PATH", "/nowhere")
    found = wrong_version(profile_settings())
    assert found and found.code == "MC118" and found.is_error
    assert "`ruff` 0.14.10" in found.message and OTHER in found.message
    assert "pip install ruff==0.14.10" in found.help and 'additional_dependencies: ["ruff==0.14.10"]' in found.help
    with pytest.raises(ConversionError, match="MC118"):
        format_files({"a.py": "x = 1\n"}, profile_settings())
    any_version = dataclasses.replace(profile_settings(), pinned_formatter=None)
    assert format_files({"a.py": "x  = 1\n"}, any_version).texts == {"a.py": "x = 1\n"}


def test_the_first_ruff_on_the_path_serves_when_it_alone_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_own(monkeypatch, ruff_in(tmp_path / "own", OTHER))
    fitting = ruff_in(tmp_path / "fitting", "0.14.10")
    another = ruff_in(tmp_path / "another", "98.0")
    monkeypatch.setenv("PATH", f"/nowhere:{fitting.parent}:{another.parent}")
    assert find_ruff(profile_settings()) == str(fitting) and wrong_version(profile_settings()) is None
    assert format_files({"a.py": "x  = 1\n"}, profile_settings()).texts == {"a.py": "x = 1\n"}
    monkeypatch.setenv("PATH", f"{another.parent}:{fitting.parent}")
    assert find_ruff(profile_settings()) == str(tmp_path / "own/ruff"), "the first alone is asked"


def test_the_own_ruff_goes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, first = ruff_in(tmp_path / "own", "0.14.10"), ruff_in(tmp_path / "first", "0.14.10")
    set_own(monkeypatch, own)
    monkeypatch.setenv("PATH", str(first.parent))
    assert find_ruff(profile_settings()) == str(own)
    assert not (first.parent / "asked").exists()


def test_no_program_of_the_tree_and_none_of_a_relative_folder_is_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    hostile = ruff_in(tree / "bin", "0.14.10")
    (tree / "pyproject.toml").write_text("")
    (tmp_path / "link").symlink_to(tree / "bin")
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked/ruff").symlink_to(hostile)
    set_own(monkeypatch, ruff_in(tmp_path / "own", OTHER))
    settings = load_settings(tree)
    assert settings.project_folder == str(tree)
    monkeypatch.chdir(tree)
    for folder in (str(hostile.parent), "bin", "", ".", str(tmp_path / "link"), str(tmp_path / "linked")):
        monkeypatch.setenv("PATH", f"{folder}:/nowhere")
        assert program_on_path("ruff", settings.project_folder) == ""
        assert wrong_version(settings)
    assert not (hostile.parent / "asked").exists()


def test_a_program_is_asked_once_until_it_is_replaced(tmp_path: Path) -> None:
    path = ruff_in(tmp_path, "1.2.3")
    assert ruff_version(str(path)) == ruff_version(str(path)) == "1.2.3"
    assert (tmp_path / "asked").read_text() == "x\n"
    ruff_in(tmp_path, "1.2.34")
    assert ruff_version(str(path)) == "1.2.34"


@pytest.mark.parametrize("script", ["exit 3", "echo out of memory >&2; exit 1", "echo hello", "echo 'ruff ; rm -rf'"])
def test_a_program_that_tells_no_version_is_an_error(tmp_path: Path, script: str) -> None:
    path = tmp_path / "ruff"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    with pytest.raises(ConversionError, match="MC115.*tells no version"):
        ruff_version(str(path))


@pytest.mark.skipif(importlib.util.find_spec("black") is None, reason="needs the extra `black`")
def test_black_has_a_version_too(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.modular-converter]\nformatter = "black"\nformatter-version = "1.0"\n'
    )
    found = wrong_version(load_settings(tmp_path))
    assert found and "pip install black==1.0" in found.help and found.location.line == 3
    (tmp_path / "pyproject.toml").write_text('[tool.modular-converter]\nformatter = "black"\n')
    assert wrong_version(load_settings(tmp_path)) is None


def in_folders(**versions: str) -> Settings:
    """The profile, with another version of ruff for each folder, which a file of that folder names."""
    profile = profile_settings()
    others = (
        (folder, dataclasses.replace(profile, pinned_formatter=PinnedFormatter("ruff", version, Location(folder))))
        for folder, version in versions.items()
    )
    return dataclasses.replace(profile, by_folder=tuple(others))


def test_each_version_that_folders_name_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("modular_converter.convert.emit.formatters.program_on_path", lambda *names: "")
    settings = in_folders(a="2.0", b="1.0", c="2.0", d="1.0", e="0.14.10", f="3.0")
    found = wrong_versions(settings, "fdcbae", lambda path: "0.14.10")
    assert [(one.code, one.location.path) for one in found] == [("MC118", "a"), ("MC118", "b"), ("MC118", "f")]
    assert wrong_versions(settings, "ee", lambda path: "0.14.10") == ()
    assert wrong_versions(settings, ["other"], lambda path: "0.14.10") == ()
    assert [one.location.path for one in wrong_versions(settings, ["other"], lambda path: "9")] == ["ruff"]


def test_the_stamp_names_each_program_that_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, other = ruff_in(tmp_path / "own", "0.14.10"), ruff_in(tmp_path / "other", "1.0")
    set_own(monkeypatch, own)
    monkeypatch.setenv("PATH", str(other.parent))
    both = {str(own): "0.14.10", str(other): "1.0"}.__getitem__
    stamps = [program_stamp(str(path)) for path in sorted((own, other))]
    assert formatter_stamp(in_folders(a="1.0", b="1.0"), both) == " ".join(stamps)
    assert formatter_stamp(in_folders(a="0.14.10"), both) == program_stamp(str(own))


def test_without_a_ruff_of_the_environment_that_of_the_path_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = ruff_in(tmp_path, OTHER)
    monkeypatch.setattr("modular_converter.convert.emit.formatters.own_ruff", lambda: "")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_ruff(profile_settings()) == str(other)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConversionError, match="MC115"):
        find_ruff(profile_settings())


@pytest.mark.parametrize(("mode", "is_beside"), [(0o755, True), (0o644, False)])
def test_where_the_ruff_of_the_environment_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, is_beside: bool
) -> None:
    beside = tmp_path / "ruff"
    beside.touch()
    beside.chmod(mode)
    package = importlib.import_module("ruff.__main__").find_ruff_bin()
    for executable, expected in ((str(tmp_path / "python"), str(beside) if is_beside else package), ("", package)):
        monkeypatch.setattr(sys, "executable", executable)
        assert own_ruff.__wrapped__() == expected
    monkeypatch.setitem(sys.modules, "ruff.__main__", None)
    assert own_ruff.__wrapped__() == ""


@pytest.mark.parametrize("size", [0, 10, EDGE_BYTES, EDGE_BYTES + 10, 3 * EDGE_BYTES])
def test_the_stamp_of_a_program_changes_with_its_size_and_both_ends(tmp_path: Path, size: int) -> None:
    path = tmp_path / "ruff"
    contents = [bytes(size), bytes(size + 1)]
    contents += [b"x" + bytes(size - 1), bytes(size - 1) + b"x"] if size else []
    contents += [bytes(EDGE_BYTES - 1) + b"x" + bytes(size - EDGE_BYTES)] if size > EDGE_BYTES else []
    stamps = set()
    for content in contents:
        path.write_bytes(content)
        stamps.add(program_stamp(str(path)))
    assert len(stamps) == len(set(contents)) and all(one.startswith(f"{path} ") for one in stamps)


def test_ruff_sees_only_the_variables_that_a_program_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"TMPDIR": "/t", "RUFF_CONFIG": "x", "TOKEN": "y", "PATH": "/p"})
    assert environment() == {"TMPDIR": "/t", "NO_COLOR": "1"}


@pytest.mark.parametrize("name", ["ruff.toml", "base.toml"])
def test_a_version_that_the_configuration_requires_holds_where_no_other_is_settled(tmp_path: Path, name: str) -> None:
    (tmp_path / "ruff.toml").write_text('extend = "base.toml"\n')
    (tmp_path / "base.toml").touch()
    with (tmp_path / name).open("a") as file:
        file.write('required-version = "==0.1.0"\n')
    settings, files = load_settings(tmp_path), {str(tmp_path / "a.py"): "x  = 1\n"}
    with pytest.raises(ConversionError, match="MC118"):
        format_files(files, settings)
    assert [*format_files(files, settings.with_any_formatter).texts.values()] == ["x = 1\n"]
    judging = dataclasses.replace(settings, pinned_formatter=PinnedFormatter("ruff", ""))
    with pytest.raises(ConversionError, match="MC115"):
        format_files(files, judging)
