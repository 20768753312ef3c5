"""Texts come back as the project's own formatter would leave the files."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys
import types
from collections.abc import Mapping

import pytest

from modular_converter.commands.convert import convert_command
from modular_converter.convert.emit import format as format_module
from modular_converter.convert.emit import format_ruff
from modular_converter.convert.emit.format import FormatMemory, format_files
from modular_converter.convert.emit.formatters import (
    Formatted,
    UndefinedName,
    formatter_stamp,
    load_formatter,
    own_ruff,
)
from modular_converter.findings import ConversionError
from modular_converter.settings.load import load_settings, profile_settings
from modular_converter.settings.values import FORMATTERS, Settings


MESSY = "import os\nimport torch\nfrom transformers import cache_utils\nclass A:\n  x = torch.zeros( 1 )\n"
NEAT = "import torch\n\n\nclass A:\n    x = torch.zeros(1)\n"


pytestmark = pytest.mark.usefixtures("private_temporary_folder")


def named(formatter: str) -> Settings:
    return dataclasses.replace(profile_settings(), formatter=formatter)


def test_unused_imports_go_and_the_rest_is_laid_out() -> None:
    result = format_files({"models/new/modeling_new.py": MESSY}, profile_settings())
    assert result.texts == {"models/new/modeling_new.py": NEAT}
    assert not result.undefined and not result.failures


def test_nothing_is_left_in_the_temporary_folder(private_temporary_folder: pathlib.Path) -> None:
    format_files({"x.py": MESSY}, profile_settings())
    assert list(private_temporary_folder.iterdir()) == []


def test_trees_of_killed_processes_are_removed(private_temporary_folder: pathlib.Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = private_temporary_folder / f"modular-converter-{dead.pid}-abc" / "tree"
    left.mkdir(parents=True)
    used = private_temporary_folder / f"modular-converter-{os.getpid()}-abc"
    used.mkdir()
    format_files({"x.py": MESSY}, profile_settings())
    if os.name != "nt":
        assert list(private_temporary_folder.iterdir()) == [used]


def test_formatting_twice_changes_nothing_more() -> None:
    once = format_files({"x.py": MESSY}, profile_settings()).texts
    assert format_files(once, profile_settings()).texts == once


def test_many_files_are_formatted_as_each_alone() -> None:
    files = {f"models/m{i}/modeling_m{i}.py": MESSY.replace("A", f"A{i}") for i in range(5)}
    files["models/m0/__init__.py"] = "from .modeling_m0 import *\n"
    together = format_files(files, profile_settings()).texts
    assert list(together) == list(files)
    assert together["models/m0/__init__.py"] == "from .modeling_m0 import *\n"
    for name, text in files.items():
        assert format_files({name: text}, profile_settings()).texts == {name: together[name]}


def test_a_memory_formats_each_text_once(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"a.py": MESSY, "b.py": "x = undefined\n", "c.py": "x = (\n"}
    whole = format_files(files, profile_settings())
    memory = FormatMemory()
    assert memory.format(files, profile_settings()) == whole
    asked: list[str] = []

    def note(some: Mapping[str, str], settings: Settings) -> Formatted:
        asked.extend(some)
        return format_files(some, settings)

    monkeypatch.setattr(format_module, "format_files", note)
    assert memory.format(files, profile_settings()) == whole
    assert not asked
    memory.format({**files, "a.py": "y = 1\n"}, profile_settings())
    assert asked == ["a.py"]


def test_same_names_in_several_folders_stay_apart(tmp_path: pathlib.Path) -> None:
    files = {str(tmp_path / "a" / "x.py"): "x = 1", "a/x.py": "x = 2", os.path.join("..", "a", "x.py"): "x = 3"}
    assert format_files(files, profile_settings()).texts == {name: text + "\n" for name, text in files.items()}


def test_undefined_names_are_found_where_they_stand_in_the_formatted_text() -> None:
    text = "def f(x):\n  return missing(x, # why\n    other)\n"
    result = format_files({"a.py": text, "b.py": "x = 1\n"}, profile_settings())
    assert set(result.undefined) == {"a.py"}
    for found in result.undefined["a.py"]:
        line = result.texts["a.py"].splitlines()[found.line - 1]
        assert line[found.column - 1 :].startswith(found.name)
    assert [found.name for found in result.undefined["a.py"]] == ["missing", "other"]


def test_undefined_names_are_found_whatever_the_project_selects(tmp_path: pathlib.Path) -> None:
    (tmp_path / "ruff.toml").write_text('fix-only = true\n[lint]\nselect = ["I"]\n')
    name = str(tmp_path / "x.py")
    result = format_files({name: "import os\nx = y\n"}, load_settings(tmp_path))
    assert result.texts[name] == "import os\n\nx = y\n"
    assert result.undefined == {name: (UndefinedName("y", 3, 5),)}


def test_a_text_that_is_no_python_stops_no_other() -> None:
    files = {"bad.py": "def f(:\n", "good.py": MESSY}
    result = format_files(files, profile_settings())
    assert result.texts == {"bad.py": "def f(:\n", "good.py": NEAT}
    finding = result.failures["bad.py"]
    assert list(result.failures) == ["bad.py"]
    assert (finding.code, str(finding.location), finding.source_line) == ("MC501", "bad.py:1:7", "def f(:")


def test_a_text_that_only_the_formatter_rejects_stops_no_other() -> None:
    """Python's parser accepts a keyword that stands twice, and its compiler does not."""
    bad = "y=1\nf(x=1, x=2)\n"
    files = {"/b/one.py": MESSY, "/a/b/one.py": bad, "/a/good.py": MESSY, "/c/two.py": bad}
    for first in (files, dict(reversed(files.items()))):
        result = format_files(first, profile_settings())
        assert result.texts == {**files, "/b/one.py": NEAT, "/a/good.py": NEAT}
        assert {name: one.code for name, one in result.failures.items()} == {
            "/a/b/one.py": "MC115",
            "/c/two.py": "MC115",
        }
        assert "two.py:2:8: Duplicate keyword argument" in result.failures["/c/two.py"].message


def test_no_files_need_no_formatter() -> None:
    assert format_files({}, named("black")).texts == {}


def test_none_leaves_the_text_but_for_its_end() -> None:
    result = format_files({"a.py": "x  = 1\n\n\n", "b.py": "y = 2"}, named("none"))
    assert result.texts == {"a.py": "x  = 1\n", "b.py": "y = 2\n"}


def test_unicode_and_line_breaks_survive() -> None:
    text = 'x = "é漢🙂"\r\ny = 2\r\n'
    assert format_files({"a.py": text}, profile_settings()).texts["a.py"] == 'x = "é漢🙂"\ny = 2\n'


def test_the_environment_has_no_say(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("RUFF_OUTPUT_FORMAT", "concise")
    monkeypatch.setenv("RUFF_OUTPUT_FILE", str(tmp_path / "report"))
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert format_files({"a.py": "x = y\n"}, profile_settings()).undefined["a.py"][0].name == "y"
    assert not (tmp_path / "report").exists()


def ruff_alone(folder: pathlib.Path, name: str, text: str) -> str:
    """What the project's own ruff makes of a file that lies in the project."""
    path = folder / name
    path.write_text(text)
    for command in (["check", "--fix", "--exit-zero", "-q"], ["format", "-q"]):
        subprocess.check_call([own_ruff(), *command, "--no-cache", name], cwd=folder)
    return path.read_text()


@pytest.mark.parametrize(
    ("config", "name"),
    [
        pytest.param("", "mylib/models/new/modeling_new.py", id="defaults"),
        pytest.param('[lint]\nselect = ["F", "I"]\n', "mylib/models/new/modeling_new.py", id="own package"),
        pytest.param('[lint]\nselect = ["F", "I"]\n', "python/mylib/modeling_new.py", id="package in another folder"),
        pytest.param('src = ["python"]\n[lint]\nselect = ["I"]\n', "other/modeling_new.py", id="named source root"),
        pytest.param(
            '[lint]\nselect = ["F"]\n[lint.per-file-ignores]\n"mylib/models/**/modeling_*.py" = ["F401"]\n',
            "mylib/models/new/modeling_new.py",
            id="ignored in a folder",
        ),
        pytest.param('extend = "conf/base.toml"\n', "mylib/models/new/modeling_new.py", id="extended"),
    ],
)
def test_the_result_is_that_of_ruff_in_the_project(tmp_path: pathlib.Path, config: str, name: str) -> None:
    folder = tmp_path / "project"
    for part in ("mylib/models/new", "python/mylib", "other", "conf"):
        (folder / part).mkdir(parents=True)
    for part in ("mylib", "mylib/models", "mylib/models/new", "python/mylib"):
        (folder / part / "__init__.py").write_text("")
    (folder / "ruff.toml").write_text(config)
    (folder / "conf" / "base.toml").write_text('line-length = 60\n[lint]\nselect = ["F", "I"]\n')
    text = (
        "import os, torch\nfrom mylib import one\nimport abc\nprint(torch, abc, one, 'a long line that may be cut')\n"
    )
    expected = ruff_alone(folder, name, text)
    path = str(folder / name)
    assert format_files({path: text}, load_settings(folder)).texts == {path: expected}


@pytest.mark.parametrize("folder", ["build", "dist", "venv", "generated"])
@pytest.mark.parametrize("config", ["", 'extend-exclude = ["generated"]\nforce-exclude = true\n'])
def test_no_folder_is_left_out(tmp_path: pathlib.Path, config: str, folder: str) -> None:
    (tmp_path / "ruff.toml").write_text(config)
    (tmp_path / ".gitignore").write_text("*\n")
    (tmp_path / ".git").mkdir()
    name = str(tmp_path / folder / "x.py")
    assert format_files({name: "x  =  1"}, load_settings(tmp_path)).texts == {name: "x = 1\n"}


def test_a_rejected_configuration_is_named(tmp_path: pathlib.Path) -> None:
    (tmp_path / "ruff.toml").write_text("line-lenght = 60\n")
    with pytest.raises(ConversionError, match="line-lenght") as caught:
        format_files({str(tmp_path / "x.py"): "x = 1\n"}, load_settings(tmp_path))
    (finding,) = caught.value.findings
    assert finding.code == "MC115" and finding.location.path == str(tmp_path / "ruff.toml")


def test_a_missing_ruff_says_how_to_get_it() -> None:
    code = (
        "import os, sys\n"
        "sys.executable, os.environ['PATH'], sys.modules['ruff.__main__'] = '', '', None\n"
        "from modular_converter.settings.load import profile_settings\n"
        "from modular_converter.convert.emit.format import format_files\n"
        "from modular_converter.findings import ConversionError\n"
        "try: format_files({'x.py': 'x = 1'}, profile_settings())\n"
        "except ConversionError as error: print(error.findings[0].code, error.findings[0].help)\n"
    )
    out = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert out.startswith("MC115") and "pip install" in out


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands in for ruff")
@pytest.mark.parametrize(
    ("script", "reason"), [("echo out of memory >&2; exit 3", "out of memory"), ("exit 3", "exit code 3")]
)
def test_a_failing_ruff_is_an_error(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, script: str, reason: str
) -> None:
    failing = tmp_path / "ruff"
    failing.write_text(f"#!/bin/sh\n{script}\n")
    failing.chmod(0o755)
    monkeypatch.setattr(format_ruff, "find_ruff", lambda settings: str(failing))
    with pytest.raises(ConversionError, match=reason):
        format_files({"x.py": "x = 1\n"}, profile_settings())


@pytest.mark.skipif(os.name == "nt", reason="a shell script stands in for ruff")
def test_a_hanging_ruff_is_ended(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hanging = tmp_path / "ruff"
    hanging.write_text("#!/bin/sh\nexec sleep 60\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(format_ruff, "find_ruff", lambda settings: str(hanging))
    monkeypatch.setattr(format_ruff, "SECONDS", 0.1)
    monkeypatch.setattr(format_ruff, "SECONDS_PER_FILE", 0.0)
    with pytest.raises(ConversionError, match="more than"):
        format_files({"x.py": "x = 1\n"}, profile_settings())


def test_the_stamp_says_which_formatter_is_at_work() -> None:
    assert own_ruff() in formatter_stamp(profile_settings())
    assert formatter_stamp(named("none")) == "none"


def test_a_formatter_is_one_file_and_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    shouting = types.ModuleType("shouting")
    shouting.run = lambda files, settings: Formatted({name: text.upper() for name, text in files.items()})
    shouting.version = lambda: "1"
    monkeypatch.setitem(sys.modules, "modular_converter.convert.emit.format_shouting", shouting)
    assert format_files({"a.py": "x = y\n"}, named("shouting")).texts == {"a.py": "X = Y\n"}
    assert formatter_stamp(named("shouting")) == "shouting 1"


@pytest.mark.parametrize("name", FORMATTERS)
def test_every_formatter_has_its_file_and_its_choice(name: str) -> None:
    formatter = load_formatter(name)
    assert callable(formatter.run) and callable(formatter.version)
    (option,) = (option for option in convert_command.params if option.name == "formatter")
    assert tuple(option.type.choices) == FORMATTERS
