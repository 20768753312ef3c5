"""A new rule is one new file, and one with its text: it is listed, explained, documented, reported and run without any other change."""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

import modular_converter


PACKAGE = pathlib.Path(modular_converter.__file__).parent
NEW_RULE = '''\
"""MC398: a class without a docstring."""

from modular_converter.findings import Rule

RULE = Rule("MC398", "no-docstring", "a class has no docstring")


def check_no_docstring(facts):
    for one in facts.classes.values():
        if all(getattr(node, "value", None) is None for node in one.members.node.body):
            yield RULE.finding(facts.at_class(one), f"`{one.name}` has no docstring")
'''


TEXT = '''\
Readers need one.

=== models/new/modular_new.py (bad)
class NewMLP:
    pass

=== models/new/modular_new.py (good)
class NewMLP:
    """A layer."""
'''


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A copy of the tool with one rule more, and a modular file that breaks it."""
    folder = tmp_path_factory.mktemp("tool")
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(PACKAGE.parent / "utils", folder / "utils", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(PACKAGE.parent / "docs", folder / "docs")
    shutil.copy(PACKAGE.parent / "zensical.toml", folder)
    (folder / PACKAGE.name / "rules" / "no_docstring.py").write_text(NEW_RULE)
    (folder / PACKAGE.name / "rules" / "texts" / "no-docstring.txt").write_text(TEXT)
    (folder / "models" / "new").mkdir(parents=True)
    (folder / "models" / "new" / "modular_new.py").write_text("class NewMLP:\n    pass\n")
    return folder


def run(folder: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120)


def test_it_is_explained(tool: pathlib.Path) -> None:
    done = run(tool, "-m", "modular_converter", "--explain", "no-docstring")
    assert done.stdout.startswith("# MC398 no-docstring\n") and "## Instead of" in done.stdout


def test_it_is_documented(tool: pathlib.Path) -> None:
    done = run(tool, "-c", "import runpy; print(runpy.run_path('utils/write_rule_docs.py')['pages']()['rules.md'])")
    assert "| [MC398](rules/MC398.md) | no-docstring | warning | a class has no docstring |" in done.stdout


def test_it_is_run_and_described_in_reports(tool: pathlib.Path) -> None:
    done = run(tool, "-m", "modular_converter", "--dry-run", "--format", "sarif", "models/new/modular_new.py")
    assert '"ruleId": "MC398"' in done.stdout and "`NewMLP` has no docstring" in done.stdout


def test_a_broken_rule_is_an_error(tool: pathlib.Path, tmp_path: pathlib.Path) -> None:
    broken = tmp_path / "tool"
    shutil.copytree(tool, broken)
    (broken / PACKAGE.name / "rules" / "no_docstring.py").write_text("from modular_converter import no_such_thing\n")
    done = run(broken, "-m", "modular_converter", "--dry-run", "models/new/modular_new.py")
    assert done.returncode == 2 and "no_such_thing" in done.stderr
