"""Texts formatted with black, by the project's settings."""

from __future__ import annotations

import dataclasses
import importlib.util
import pathlib
import subprocess
import sys

import pytest

from modular_converter.convert.emit.format import format_files
from modular_converter.convert.emit.formatters import formatter_stamp
from modular_converter.findings import ConversionError
from modular_converter.settings.load import load_settings
from tests.unit.convert.emit.test_format import named


pytestmark = pytest.mark.usefixtures("private_temporary_folder")

needs_black = pytest.mark.skipif(importlib.util.find_spec("black") is None, reason="needs the extra `black`")


@needs_black
def test_black_formats_too(tmp_path: pathlib.Path) -> None:
    files = {"a.py": "x = { 'a':1 }\n", "bad.py": "def f(:\n"}
    result = format_files(files, named("black"))
    assert result.texts == {"a.py": 'x = {"a": 1}\n', "bad.py": "def f(:\n"}
    assert result.failures["bad.py"].code == "MC501"
    assert formatter_stamp(named("black")).startswith("black ")


@needs_black
def test_black_obeys_the_project(tmp_path: pathlib.Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        "[tool.black]\nline-length = 20\nskip-string-normalization = true\ntarget-version = ['py310']\n"
        "[tool.modular-converter]\nformatter = 'black'\n"
    )
    result = format_files({"a.py": "x = ['aaaaaaaa', 'bbbbbbbb']\n"}, load_settings(tmp_path))
    assert result.texts == {"a.py": "x = [\n    'aaaaaaaa',\n    'bbbbbbbb',\n]\n"}


@needs_black
@pytest.mark.parametrize(
    ("option", "expected"),
    [
        ("", 'f(\n    "a",\n)\n'),
        ("skip-magic-trailing-comma = true", 'f("a")\n'),
        ("skip-magic-trailing-comma = false", 'f(\n    "a",\n)\n'),
        ("skip-string-normalization = true", "f(\n    'a',\n)\n"),
        ("target-version = ['py310', 'py311']", 'f(\n    "a",\n)\n'),
    ],
)
def test_each_option_of_black_has_its_say(tmp_path: pathlib.Path, option: str, expected: str) -> None:
    (tmp_path / "pyproject.toml").write_text(
        f"[tool.black]\n{option}\n[tool.modular-converter]\nformatter = 'black'\n"
    )
    assert format_files({"a.py": "f('a',)\n"}, load_settings(tmp_path)).texts == {"a.py": expected}


@needs_black
@pytest.mark.parametrize(("length", "lines"), [(117, 1), (118, 3)])
def test_without_options_black_takes_lines_of_our_length(length: int, lines: int) -> None:
    text = f"x = [{'a' * (length - 4)}]\n"
    assert format_files({"a.py": text}, named("black")).texts["a.py"].count("\n") == lines


@needs_black
def test_undefined_names_are_told_whatever_formats() -> None:
    for formatter in ("black", "none"):
        result = format_files({"a.py": "x = 1\n", "b.py": "\n\ny = (z)\n", "c.py": "(\n"}, named(formatter))
        (found,) = result.undefined["b.py"]
        assert result.texts["b.py"].split("\n")[found.line - 1][found.column - 1 :].startswith("z")
        assert [*result.undefined] == ["b.py"] and [*result.failures] == (["c.py"] if formatter == "black" else [])


@needs_black
def test_black_settings_that_cannot_be_used_are_an_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.black]\ntarget-version = ['py1']\n")
    settings = dataclasses.replace(load_settings(tmp_path), formatter="black")
    with pytest.raises(ConversionError, match="cannot be used"):
        format_files({"a.py": "x = 1\n"}, settings)


def test_a_missing_black_says_how_to_get_it() -> None:
    code = (
        "import sys, dataclasses\n"
        "sys.modules['black'] = None\n"
        "from modular_converter.settings.load import profile_settings\n"
        "from modular_converter.convert.emit.format import format_files\n"
        "from modular_converter.findings import ConversionError\n"
        "settings = dataclasses.replace(profile_settings(), formatter='black')\n"
        "try: format_files({'x.py': 'x = 1'}, settings)\n"
        "except ConversionError as error: print(error.findings[0].code, error.findings[0].help)\n"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert out.startswith("MC115") and "pip install black" in out
