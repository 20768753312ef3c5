"""The `modular-convert` command: what it takes, writes, prints and returns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from modular_converter.commands.convert import convert_command
from modular_converter.commands.options import spread_files


ROOT = Path(__file__).parents[3]
BASE = "from torch import nn\n\n\nclass BaseMLP(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
NEW = """\
from ..base.modeling_base import BaseMLP


class NewMLP(BaseMLP):
    pass


__all__ = ["NewMLP"]
"""


@pytest.fixture
def tree(tmp_path, monkeypatch) -> Path:
    """A repository with one neighbour and one modular file, as the current folder."""
    for model, name, text in (("base", "modeling_base.py", BASE), ("new", "modular_new.py", NEW)):
        (tmp_path / "models" / model).mkdir(parents=True)
        (tmp_path / "models" / model / name).write_text(text)
    (tmp_path / "pyproject.toml").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str):
    return CliRunner().invoke(convert_command, list(arguments))


def generated(tree: Path) -> Path:
    return tree / "models/new/modeling_new.py"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("--files-to-parse", "models/new/modular_new.py"), id="path"),
        pytest.param(("--files_to_parse", "new"), id="model name"),
        pytest.param(("--files", "models"), id="folder"),
        pytest.param(("-f", "all"), id="all"),
        pytest.param(("models/*/modular_*.py",), id="glob"),
        pytest.param(("--files-to-parse=new",), id="equals"),
        pytest.param(("--root", ".", "new"), id="root"),
        pytest.param(("--root", "models", "new"), id="root is the models folder"),
    ],
)
def test_ways_to_name_a_file(tree, arguments):
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    assert "class NewMLP(nn.Module)" in generated(tree).read_text()
    assert "1 modular file, 1 generated file (1 written)" in result.output


def test_files_to_parse_takes_many_and_may_be_repeated():
    given = ["--files-to-parse", "a", "b", "--quiet", "-f", "c", "--", "--files"]
    assert spread_files(given) == ["a", "b", "--quiet", "c", "--", "--files"]


def test_writing_twice_writes_once(tree):
    call("new")
    before = generated(tree).stat().st_mtime_ns
    assert "(0 written)" in call("new").output
    assert generated(tree).stat().st_mtime_ns == before


@pytest.mark.parametrize("option", ["--diff", "--dry-run"])
def test_looking_writes_nothing_and_says_whether_it_would(tree, option):
    result = call(option, "new")
    assert result.exit_code == 1
    assert not generated(tree).exists()
    expected = "+class NewMLP(nn.Module):" if option == "--diff" else "modeling_new.py: would be new"
    assert expected in result.output
    call("new")
    assert call(option, "new").exit_code == 0


def test_output_dir(tree):
    assert call("--output-dir", "out", "new").exit_code == 0
    assert (tree / "out/new/modeling_new.py").exists()
    assert not generated(tree).exists()


def test_an_installed_package_is_read_only_and_wants_an_output_dir(tmp_path):
    refused = call("--package", "transformers", "olmo2")
    assert refused.exit_code == 2
    assert "--output-dir" in refused.output
    result = call("--package", "transformers", "--output-dir", str(tmp_path), "olmo2")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in tmp_path.rglob("*.py")) == ["configuration_olmo2.py", "modeling_olmo2.py"]


def test_verbose_says_where_each_definition_comes_from(tree):
    output = call("--verbose", "new").output
    assert "NewMLP: merged models/new/modular_new.py:4" in output.replace(os.sep, "/")


def test_quiet_prints_nothing_when_all_is_well(tree):
    assert call("--quiet", "new").output == ""


def test_one_bad_file_stops_no_other(tree):
    (tree / "models/bad").mkdir()
    (tree / "models/bad/modular_bad.py").write_text("from ..bsae.modeling_bsae import BaseMLP\n")
    result = call("all", "nothing.py")
    assert result.exit_code == 2
    assert generated(tree).exists()
    assert "modular_bad.py:1:" in result.output and "MC104" in result.output
    assert "nothing.py:1:1: error MC103" in result.output
    assert "1 of 2 modular files converted" in result.output


def test_findings_alone_exit_with_one(tree):
    path = tree / "models/new/modular_new.py"
    path.write_text(NEW.replace("class NewMLP", "def unused():\n    pass\n\n\nclass NewMLP"))
    assert call("new").exit_code == 0
    generated(tree).unlink()
    result = call("--strict", "new")
    assert result.exit_code == 1
    assert not generated(tree).exists()


@pytest.mark.parametrize(
    ("output_format", "check"),
    [
        ("json", lambda text: json.loads(text)[0]["code"] == "MC104"),
        ("github", lambda text: text.startswith("::error file=")),
        ("sarif", lambda text: json.loads(text)["runs"][0]["results"][0]["ruleId"] == "MC104"),
    ],
)
def test_forms_of_the_findings(tree, output_format, check):
    (tree / "models/new/modular_new.py").write_text(NEW.replace("..base.modeling_base", "..basis.modeling_basis"))
    result = call("--format", output_format, "new")
    assert result.exit_code == 2
    assert check(result.stdout)


def test_explain():
    assert "two" in call("--explain", "MC108").output.lower()
    wrong = call("--explain", "two-parrents")
    assert wrong.exit_code == 2 and "two-parents" in wrong.output


def test_without_files_it_says_what_to_name(tree):
    result = call()
    assert result.exit_code == 2 and "all" in result.output


@pytest.mark.parametrize("name", ["nwe", "models/base", "models/base/modeling_base.py", "models/*/nothing*.py"])
def test_arguments_that_stand_for_nothing(tree, name):
    result = call(name)
    assert result.exit_code == 2
    assert "MC111" in result.output
    if name == "nwe":
        assert "new" in result.output


@pytest.mark.parametrize("formatter", ["ruff", "black", "none"])
def test_formatters(tree, formatter):
    assert call("--formatter", formatter, "new").exit_code == 0
    assert "class NewMLP(nn.Module):" in generated(tree).read_text()


def test_a_missing_ruff_is_a_finding_and_nothing_is_written(tree, monkeypatch):
    from modular_converter.convert.emit.formatters import own_ruff

    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    monkeypatch.setitem(sys.modules, "ruff.__main__", None)
    monkeypatch.setenv("PATH", "/nowhere")
    own_ruff.cache_clear()
    result = call("new")
    own_ruff.cache_clear()
    assert result.exit_code == 2 and "MC115" in result.output
    assert not generated(tree).exists()


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else False, reason="root may write anywhere")
def test_a_read_only_target(tree):
    call("new")
    generated(tree).write_text("old")
    generated(tree).chmod(0o444)
    assert call("new").exit_code == 2


def test_a_target_that_cannot_be_written_stops_no_other(tree):
    generated(tree).mkdir()
    (tree / "models/other").mkdir()
    (tree / "models/other/modular_other.py").write_text(NEW.replace("New", "Other"))
    result = call("all")
    assert result.exit_code == 2 and "MC113" in result.output
    assert (tree / "models/other/modeling_other.py").is_file()


def test_a_target_that_is_a_link_out_of_the_root(tree, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "file.py"
    outside.write_text("precious")
    generated(tree).symlink_to(outside)
    result = call("new")
    assert result.exit_code == 2 and "MC114" in result.output
    assert outside.read_text() == "precious"


@pytest.mark.parametrize("command", [["-m", "modular_converter"], [str(ROOT / "utils/modular_model_converter.py")]])
def test_other_ways_to_call_it(tree, command):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    arguments = [sys.executable, *command, "--files-to-parse", "new"]
    done = subprocess.run(arguments, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert generated(tree).exists()


def test_a_kill_at_any_moment_leaves_old_or_new_and_nothing_else(tree):
    """Kill the process again and again while it writes; each file is whole at every moment."""
    for number in range(20):
        folder = tree / "models" / f"n{number}"
        folder.mkdir()
        (folder / f"modular_n{number}.py").write_text(NEW.replace("New", f"N{number}"))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for delay in (0.15, 0.2, 0.22, 0.24, 0.26, 0.3):
        process = subprocess.Popen(
            [sys.executable, "-m", "modular_converter", "--quiet", "all"], env=environment, stderr=subprocess.DEVNULL
        )
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        for path in tree.glob("models/n*/modeling_*.py"):
            assert path.read_text().endswith("]\n"), "a file is whole or not there"
    assert call("all").exit_code == 0
    names = {path.name for path in tree.glob("models/n*/*")}
    assert not [name for name in names if not name.endswith(".py")], "no stray files are left"
    assert len(list(tree.glob("models/n*/modeling_*.py"))) == 21


def test_an_import_from_the_root_names_what_is_imported_and_from_where(tree):
    (tree / "models/new/modular_new.py").write_text("from transformers import LlamaModel\n")
    result = call("new")
    assert result.exit_code == 2
    assert "modular_new.py:1:26: error MC107 `LlamaModel` is imported from the root of `transformers`" in result.output


def test_a_project_adds_a_kind_of_file(tree):
    (tree / "pyproject.toml").write_text(
        '[tool.modular-converter.kinds]\nTokenizerFast = "tokenization_{model}_fast"\n'
    )
    path = tree / "models/new/modular_new.py"
    path.write_text(
        NEW.replace('["NewMLP"]', '["NewMLP", "NewTokenizerFast"]') + "\n\nclass NewTokenizerFast:\n    pass\n"
    )
    assert call("new").exit_code == 0
    assert "class NewTokenizerFast" in (tree / "models/new/tokenization_new_fast.py").read_text()
    assert "TokenizerFast" not in generated(tree).read_text()
