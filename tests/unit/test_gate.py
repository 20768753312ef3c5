"""The gate runs every test: the ordinary ones with the README's command, the others with that of CONTRIBUTING.md."""

from __future__ import annotations

import ast
import pathlib
import re
import shlex

import pytest


ROOT = pathlib.Path(__file__).parents[2]
MARK = "slow"


def arguments_of(page: str, name: str) -> list[str]:
    """What pytest is given by the command behind `<!-- setup: NAME -->`."""
    text = (ROOT / page).read_text(encoding="utf-8")
    (line,) = re.findall(rf"^<!-- setup: {name} -->\n```sh\n([^\n]+)\n```$", text, re.MULTILINE)
    return shlex.split(line.partition(" -m pytest ")[2])


def test_each_test_is_run_by_one_of_the_two_commands(pytestconfig: pytest.Config) -> None:
    given = pytestconfig.getini("addopts")
    assert given[given.index("-m") + 1] == f"not {MARK}" and given.count("-m") == 1
    assert arguments_of("README.md", "dev") == ["-n", "3"]
    assert arguments_of("CONTRIBUTING.md", "slow") == ["-n", "2", "-m", MARK]
    assert not [path for path in ROOT.rglob("tests/**/conftest.py") if "collect_ignore" in path.read_text("utf-8")]


def test_the_gate_runs_both() -> None:
    gate = (ROOT / ".ci/run").read_text(encoding="utf-8")
    for page, name in (("README.md", "dev"), ("CONTRIBUTING.md", "slow")):
        assert f"\n{name}=$(command_of {page} {name})\n" in gate
    assert 'for part in "$dev" "$slow"; do' in gate and '\n    bash -ec "$part" || status=$?\n' in gate
    assert gate.endswith('exit "$status"\n')


def test_a_file_of_slow_tests_has_a_quick_one() -> None:
    """So that whoever changes a feature runs something of it."""
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        if f"mark.{MARK}" not in (text := path.read_text(encoding="utf-8")):
            continue
        body = ast.parse(text).body
        tests = [one for one in body if getattr(one, "name", "").startswith("test_")]
        marks = [[ast.unparse(one) for one in test.decorator_list] for test in tests]
        assert any(f"pytest.mark.{MARK}" not in one for one in marks), path
        of_all = [line for line in map(ast.unparse, body) if line.startswith("pytestmark")]
        assert not [line for line in of_all if f"mark.{MARK}" in line], path
