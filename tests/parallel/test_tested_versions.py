"""Another version of transformers or torch than the extra `parallel` names is told once, at the start."""

from __future__ import annotations

import logging
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from click.testing import CliRunner
from packaging.requirements import Requirement


pytest.importorskip("transformers")
from modular_converter.parallel import parallelize, tested_versions  # noqa: E402
from modular_converter.parallel.cli import main  # noqa: E402
from modular_converter.parallel.errors import PlanError  # noqa: E402


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

NEEDED = [
    "click>=8.1",
    'torch==2.13.0; extra == "dev"',
    'torch>=2.13; extra == "parallel"',
    'transformers==5.23.0; extra == "dev"',
    'transformers<5.25,>=5.23; extra == "parallel"',
]
TESTED = {"torch": "2.13.0+cpu", "transformers": "5.23.0"}


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch):
    """Sets the versions that are found; None for a package without metadata."""

    def install(versions: dict[str, str], needed: list[str] | None = NEEDED) -> None:
        def requires(name: str) -> list[str]:
            if needed is None:
                raise PackageNotFoundError(name)
            return needed

        monkeypatch.setattr(tested_versions, "version", versions.__getitem__)
        monkeypatch.setattr(tested_versions, "requires", requires)
        tested_versions.tell_untested.cache_clear()

    yield install
    tested_versions.tell_untested.cache_clear()


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    tested_versions.tell_untested()
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]


@pytest.mark.parametrize("found", ["5.22.2", "5.25.0", "5.25.0.dev0", "5.23.0rc1", "6.0.0"])
def test_another_version_of_transformers_is_told_once(installed, caplog, found: str) -> None:
    installed({**TESTED, "transformers": found})
    assert told(caplog) == told(caplog)
    assert told(caplog) == [
        f"outside of what was tested: transformers {found} (tested: >=5.23, <5.25); private names are used, so a run may "
        "fail or give other numbers"
    ]


@pytest.mark.parametrize("found", ["5.23.0", "5.23.1", "5.24.0", "5.24.7", "5.24.0.dev0"])
def test_a_tested_version_is_not_told(installed, caplog, found: str) -> None:
    installed({**TESTED, "transformers": found})
    assert told(caplog) == []


def test_two_libraries_are_one_line(installed, caplog) -> None:
    installed({"torch": "2.12.1", "transformers": "5.30.0"})
    [line] = told(caplog)
    assert "torch 2.12.1 (tested: >=2.13); transformers 5.30.0 (tested: >=5.23, <5.25);" in line


def test_a_source_tree_that_is_not_installed_has_no_range(installed, caplog) -> None:
    installed({"torch": "2.12.1", "transformers": "5.30.0"}, needed=None)
    assert told(caplog) == []


@pytest.mark.parametrize(("rank", "lines"), [("0", 1), ("1", 0), ("15", 0)])
def test_the_first_of_several_ranks_says_it(installed, caplog, monkeypatch, rank: str, lines: int) -> None:
    monkeypatch.setenv("RANK", rank)
    installed({**TESTED, "transformers": "5.30.0"})
    assert len(told(caplog)) == lines


def test_parallelize_and_the_command_begin_with_it(installed, caplog) -> None:
    installed({**TESTED, "transformers": "5.30.0"})
    with pytest.raises(PlanError):
        parallelize(object())
    assert [one for one in caplog.messages if "transformers 5.30.0" in one]
    caplog.clear()
    installed({**TESTED, "transformers": "5.30.0"})
    CliRunner().invoke(main, ["show", "no_such_model"])
    assert [one for one in caplog.messages if "transformers 5.30.0" in one]


def test_the_extra_bounds_every_library_that_is_told() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == tested_versions.TOOL
    ranges = {one.name: one.specifier for one in map(Requirement, project["optional-dependencies"]["parallel"])}
    assert all(len(ranges[name]) for name in tested_versions.LIBRARIES)
    developed = {one.name: one.specifier for one in map(Requirement, project["optional-dependencies"]["dev"])}
    for name in tested_versions.LIBRARIES:
        (pin,) = developed[name]
        assert ranges[name].contains(pin.version), "the version of the tests is in the tested range"
