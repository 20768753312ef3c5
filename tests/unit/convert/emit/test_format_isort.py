"""Imports sorted with isort after the formatter, by the project's options, which may be a stranger's."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import pathlib
import sys

import pytest

from modular_converter.convert.emit.format import format_files
from modular_converter.convert.emit.formatters import formatter_stamp, wrong_version
from modular_converter.findings import ConversionError
from modular_converter.settings.load import load_settings
from modular_converter.settings.toml_files import isort_options
from modular_converter.settings.values import Settings


pytestmark = pytest.mark.usefixtures("private_temporary_folder")

needs_isort = pytest.mark.skipif(importlib.util.find_spec("isort") is None, reason="needs the extra `isort`")
TEXT = "from torch import nn\nimport torch\nimport acme\nimport os\n\nos, nn, torch, acme\n"


def project(folder: pathlib.Path, options: str = "", post_format: str = "isort") -> Settings:
    (folder / "pyproject.toml").write_text(
        f'[tool.modular-converter]\nformatter = "none"\npost-format = ["{post_format}"]\n[tool.isort]\n{options}\n'
    )
    return load_settings(folder)


@needs_isort
def test_imports_are_sorted_by_the_options_of_the_project(tmp_path: pathlib.Path) -> None:
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme" / "__init__.py").touch()
    result = format_files({"a.py": TEXT}, project(tmp_path, 'profile = "black"'))
    assert (
        result.texts["a.py"]
        == "import os\n\nimport torch\nfrom torch import nn\n\nimport acme\n\nos, nn, torch, acme\n"
    )
    result = format_files({"a.py": TEXT}, project(tmp_path, 'known_first_party = "torch"\ncombine_as_imports = true'))
    assert result.texts["a.py"].startswith("import os\n\nimport acme\nimport torch\nfrom torch import nn\n")


@needs_isort
def test_names_without_a_definition_have_their_new_lines(tmp_path: pathlib.Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.modular-converter]\npost-format = ["isort"]\n[tool.isort]\nlines_after_imports = 4\n'
    )
    result = format_files({"a.py": "import os\n\n\nos.getcwd(gone)\n"}, load_settings(tmp_path))
    assert [(one.name, one.line) for one in result.undefined["a.py"]] == [("gone", 6)]


@needs_isort
def test_a_file_may_ask_to_be_left_alone(tmp_path: pathlib.Path) -> None:
    text = f"# isort: skip_file\n{TEXT}"
    assert format_files({"a.py": text}, project(tmp_path)).texts == {"a.py": text}


@needs_isort
def test_the_version_is_held_to(tmp_path: pathlib.Path) -> None:
    found = wrong_version(project(tmp_path, post_format="isort==1.2.3"))
    assert (
        found and found.code == "MC118" and "pip install isort==1.2.3" in found.help and "`post-format`" in found.help
    )
    assert wrong_version(project(tmp_path)) is None and "isort " in formatter_stamp(project(tmp_path))


def test_a_missing_isort_says_how_to_get_it(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "isort", None)
    monkeypatch.setattr("importlib.metadata.Distribution.from_name", _not_found)
    with pytest.raises(ConversionError, match="isort.*not installed"):
        format_files({"a.py": TEXT}, project(tmp_path))


def _not_found(name: str) -> None:
    raise importlib.metadata.PackageNotFoundError(name)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ('formatter = "evil"', "runs other code"),  # an entry point that isort would load
        ('git_ls_files = "x"', "runs other code"),
        ('sort_order = "native"', "runs other code"),
        ("lines_after_imports = 1000000000", "at most 1000"),
        ('src_paths = ["../elsewhere"]', "plain names"),
        ('src_paths = ["/etc"]', "plain names"),
        ('known_first_party = ["(a+)+"]', "plain names"),
        ('known_first_party = ["*a*a*a"]', "plain names"),
        ('known_first_party = ["lib/"]', "plain names"),
        ("profile = 3", "a string"),
        ('force_single_line = "yes"', "true or false"),
    ],
)
def test_an_option_that_could_do_more_than_sort_is_refused(tmp_path: pathlib.Path, options: str, said: str) -> None:
    with pytest.raises(ConversionError) as caught:
        project(tmp_path, options)
    found = caught.value.findings[0]
    assert found.code == "MC116" and said in found.message and found.location.line == 5


@needs_isort
def test_a_profile_is_one_of_its_own(tmp_path: pathlib.Path) -> None:
    """For another name isort loads every plugin."""
    with pytest.raises(ConversionError, match="no profile 'mine'"):
        format_files({"a.py": TEXT}, project(tmp_path, 'profile = "mine"'))


@pytest.mark.parametrize("command", ["./evil.sh", "isort --settings x", "isort==1; rm", "black"])
def test_other_commands_of_a_tree_are_never_run(tmp_path: pathlib.Path, command: str) -> None:
    with pytest.raises(ConversionError, match="never run"):
        project(tmp_path, post_format=command)


@needs_isort
@pytest.mark.parametrize(
    ("name", "section"),
    [(".isort.cfg", "settings"), ("setup.cfg", "isort"), ("setup.cfg", "tool:isort"), ("tox.ini", "isort")],
)
def test_options_in_a_file_of_isorts_own_count(tmp_path: pathlib.Path, name: str, section: str) -> None:
    (tmp_path / name).write_text(
        f"[{section}]\nforce_single_line = true\nline_length=80\nknown_first_party = a,\n  b\n"
    )
    found = format_files({"x.py": "from os import path, sep\n\nprint(path, sep)\n"}, project(tmp_path))
    assert found.texts["x.py"].startswith("from os import path\nfrom os import sep\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[settings]\nline_length = wide\n", "whole number"),
        ("[settings]\nplugins = evil\n", "not one of the options"),
        ("no section\n", "cannot read"),
    ],
)
def test_a_wrong_file_of_isorts_own_is_refused(tmp_path: pathlib.Path, text: str, said: str) -> None:
    (tmp_path / ".isort.cfg").write_text(text)
    with pytest.raises(ConversionError, match=said):
        project(tmp_path)


def test_the_order_of_files_is_that_of_isort(tmp_path: pathlib.Path) -> None:
    for name, section in ((".isort.cfg", "settings"), ("setup.cfg", "isort")):
        (tmp_path / name).write_text(f"[{section}]\nline_length = {len(name)}\n")
    (tmp_path / "pyproject.toml").write_text("[tool.isort]\nline_length = 99\n")
    assert isort_options(str(tmp_path), [str(tmp_path)]) == (str(tmp_path), {"line_length": 10})
    (tmp_path / ".isort.cfg").unlink()
    assert isort_options(str(tmp_path), [str(tmp_path)])[1] == {"line_length": 99}
    (tmp_path / "pyproject.toml").unlink()
    assert isort_options(str(tmp_path), [str(tmp_path)])[1] == {"line_length": 9}
