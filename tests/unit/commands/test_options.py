"""What all commands have: a version, help, the same spellings, and the same exit codes."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import modular_converter
from modular_converter.commands.check import check_command
from modular_converter.commands.convert import convert_command
from modular_converter.commands.options import run_command
from modular_converter.commands.subcommands import SUBCOMMANDS, lsp_command, merge_driver_command, modularize_command
from modular_converter.findings import Finding, Location, Severity, exit_code
from modular_converter.reporting import FORMATS, render
from modular_converter.rules import by_code


ROOT = Path(__file__).parents[3]
COMMANDS = {
    "modular-convert": "modular_converter.commands.convert",
    "modular-convert graph": "modular_converter.commands.convert",
    "check-modular-conversion": "modular_converter.commands.check",
    "modular-plan": "modular_converter.parallel.cli",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_tells_its_version(command):
    _, *subcommand = command.split()
    code = f"import sys; from {COMMANDS[command]} import main; main(sys.argv[1:])"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for option, expected in (("--version", modular_converter.__version__), ("-h", "Usage: ")):
        arguments = [sys.executable, "-c", code, *subcommand, option]
        done = subprocess.run(arguments, capture_output=True, text=True, env=environment)
        assert done.returncode == 0 and expected in done.stdout, done.stderr
        assert option != "--version" or command in done.stdout


def test_every_installed_command_is_among_them():
    found = importlib.metadata.distribution("modular-converter").entry_points
    scripts = {one.name for one in found if one.group == "console_scripts"}
    assert scripts == {command.split()[0] for command in COMMANDS}


@pytest.mark.parametrize(
    ("codes", "incomplete", "different", "expected"),
    [
        ((), False, False, 0),
        (("MC307",), False, False, 0),
        ((), False, True, 1),
        (("MC401",), False, False, 1),
        (("MC401", "MC104"), False, True, 2),
        ((), True, False, 2),
    ],
)
def test_exit_codes(codes, incomplete, different, expected):
    findings = [Finding(by_code(code), Location("m.py"), "") for code in codes]
    assert exit_code(findings, incomplete=incomplete, different=different) == expected


def test_strict_makes_a_warning_count():
    finding = Finding(by_code("MC307"), Location("m.py"), "")
    assert exit_code([finding]) == 0
    assert exit_code([finding.with_severity(Severity.ERROR)]) == 1


def test_every_format_can_be_chosen():
    for command in (convert_command, check_command):
        (option,) = (option for option in command.params if option.name == "output_format")
        assert tuple(option.type.choices) == FORMATS
    assert all(isinstance(render(format, []), str) for format in FORMATS)


def test_the_help_lists_the_commands_and_a_misspelt_one_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(convert_command, ["--help"]).output
    assert all(f"\n  {name}  " in shown for name in SUBCOMMANDS)
    done = CliRunner().invoke(convert_command, ["grpah"])
    assert done.exit_code == 2 and "Did you mean `graph`? It is a command" in done.output
    assert "is a command" not in CliRunner().invoke(convert_command, ["no_such_model"]).output


@pytest.fixture
def child(tmp_path, monkeypatch):
    """A library of one stale model, in the current folder."""
    folder = tmp_path / "models" / "emu"
    folder.mkdir(parents=True)
    (folder / "modular_emu.py").write_text("class EmuModel:\n    size = 1\n", encoding="utf-8")
    (folder / "modeling_emu.py").write_text("class EmuModel:\n    size = 2\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return folder


def check(*arguments):
    return CliRunner().invoke(check_command, ["--no-cache", *arguments])


def test_a_former_option_is_accepted_with_a_hint(child):
    done = check("--fix")
    assert done.exit_code == 0 and "hint: write `--write` for `--fix`" in done.stderr
    assert "size = 1" in (child / "modeling_emu.py").read_text(encoding="utf-8")
    assert "hint" not in check("--write").stderr


def test_exit_zero_hides_findings_and_no_failure(child):
    assert check().exit_code == 1
    assert check("--exit-zero").exit_code == 0
    assert CliRunner().invoke(convert_command, ["emu", "--dry-run", "--exit-zero"]).exit_code == 0
    assert check("--exit-zero", "no_such_model").exit_code == 2


def test_formats_have_the_name_that_ruff_gives_them(child):
    assert json.loads(check("--output-format", "json").stdout)[0]["code"] == "MC401"


def test_config_names_the_file_of_the_settings(child, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.modular-converter]\nroot = "nowhere"\n', encoding="utf-8")
    assert check().exit_code == 2
    other = tmp_path / "other.toml"
    other.write_text('[tool.modular-converter]\nroot = "models"\n', encoding="utf-8")
    assert check("--config", str(other)).exit_code == 1
    assert check().exit_code == 2, "the option holds for one run"
    other.write_text("", encoding="utf-8")
    done = check("--config", str(other))
    assert done.exit_code == 2 and "Give it a table `[tool.modular-converter]`" in done.stderr


@pytest.mark.parametrize("required", ["0.0.7", "<0.1", ">=0.1,<0.1.0", "==9.*"])
def test_another_version_of_the_tool_is_refused(child, tmp_path, required):
    text = f'[tool.modular-converter]\nrequired-version = "{required}"\n'
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    done = check()
    assert done.exit_code == 2 and done.stderr.startswith("pyproject.toml:2:1: error MC116 this project requires")
    assert modular_converter.__version__ in done.stderr and "help: Install a version that fits" in done.stderr


@pytest.mark.parametrize("required", [modular_converter.__version__, f">={modular_converter.__version__}, <99"])
def test_a_fitting_version_of_the_tool_is_accepted(child, tmp_path, required):
    text = f'[tool.modular-converter]\nrequired-version = "{required}"\n'
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    assert check().exit_code == 1


def test_a_required_version_must_be_one(child, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.modular-converter]\nrequired-version = "new"\n', encoding="utf-8")
    assert 'must be a version or a range such as "0.1.0"' in check().stderr


MISUSED = {
    "--breaking": (check_command, "--breaking needs --against REF"),
    "--against main": (check_command, "--breaking needs --against REF"),
    "--markdown -": (check_command, "--markdown needs both"),
    "--accept-release new": (check_command, "must be one version such as 5.25, not 'new'"),
    "--config none.toml": (check_command, "there is no file 'none.toml'"),
    "--select MC401": (check_command, "MC401 is reported anyway"),
    "--select unheard": (check_command, "unheard"),
    "--list-rules --format github": (convert_command, "--list-rules prints text or json"),
    "merge-driver install --yes": (merge_driver_command, "git cannot be asked here"),
    "merge-driver uninstall": (merge_driver_command, "git cannot be asked here"),
    "modularize emu": (modularize_command, "exists, and is not overwritten"),
}


@pytest.mark.parametrize("given", MISUSED)
def test_what_an_option_needs_is_told(given, child):
    command, said = MISUSED[given]
    words = given.split() if command in (check_command, convert_command) else given.split()[1:]
    done = CliRunner().invoke(command, words)
    assert done.exit_code == 2 and said in done.output, done.output
    assert "MC199" not in done.output


class Without:
    """A finder that lacks a package."""

    def __init__(self, package):
        self.package = package

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == self.package:
            raise ModuleNotFoundError(f"No module named {self.package!r}", name=self.package)


@pytest.mark.parametrize(("package", "is_told"), [("pygls", True), ("asyncio", False)])
def test_a_missing_package_of_the_language_server_is_told(package, is_told, monkeypatch):
    for name in [one for one in sys.modules if one.partition(".")[0] in ("pygls", package)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "modular_converter.lsp.server", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Without(package), *sys.meta_path])
    done = CliRunner().invoke(lsp_command, [])
    assert ("The language server needs the package `pygls`" in done.output) is is_told
    assert done.exit_code == (2 if is_told else 1)


def test_a_merge_driver_without_generated_files_is_not_set_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(merge_driver_command, ["install", "--yes"])
    assert done.exit_code == 2 and "no generated file was found; give --root DIR" in done.output


def test_rules_are_listed_in_each_form():
    listed = CliRunner().invoke(convert_command, ["--list-rules"])
    values = json.loads(CliRunner().invoke(convert_command, ["--list-rules", "--format", "json"]).stdout)
    assert listed.exit_code == 0 and listed.stdout.count("MC401") == 1
    assert len(listed.stdout.splitlines()) >= len(values["rules"] if isinstance(values, dict) else values) > 100


@pytest.mark.parametrize("given", [[], ["--verbose"], ["-v"]])
def test_an_error_of_the_tool_is_told_with_its_traceback_if_asked(given, capsys):
    @click.command()
    @click.option("--verbose", "-v", is_flag=True)
    def fails(verbose):
        raise ZeroDivisionError("of this test")

    with pytest.raises(SystemExit) as end:
        run_command(fails, given, "fails")
    shown = capsys.readouterr().err
    assert end.value.code == 2 and "MC199" in shown and "of this test" in shown
    assert ("Traceback" in shown) == bool(given)
