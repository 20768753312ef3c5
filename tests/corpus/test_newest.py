"""The newest release in the package index: it is exact, or it is one finding and no file that exists is changed."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path

import pytest
from click.testing import CliRunner

from modular_converter.commands.check import check_command
from modular_converter.settings.load import parse_release, profile_settings
from tests.unit.trees import BASE, add, edit


UTILS = Path(__file__).parents[2] / "utils"


def check_kept(package: Path, cache: Path) -> list[str]:
    """The errors of `--write` in a package, but for those that name a difference. Nothing that exists has changed."""
    before = {path: path.read_bytes() for path in package.rglob("*.py")}
    arguments = ["--root", str(package), "--format", "json", "--write"]
    done = CliRunner().invoke(check_command, arguments, env={"MODULAR_CONVERTER_CACHE": str(cache)})
    assert {path: path.read_bytes() for path in before} == before
    return [one["code"] for one in json.loads(done.stdout) if one["severity"] == "error"]


def test_a_newer_release_with_another_convention_is_kept(tmp_path: Path) -> None:
    package = tmp_path / "transformers"
    for model in ("ant", "bee", "cat"):
        add(package / "models", model, "base")
    (package / "models/base").mkdir()
    (package / "models/base/modeling_base.py").write_text(BASE)
    (package / "__init__.py").write_text('__version__ = "999.0.0"\n')
    assert check_kept(package, tmp_path / "cache") == [], "new files are written"
    assert check_kept(package, tmp_path / "cache") == [], "exact"
    for model in ("ant", "bee", "cat"):
        edit(package, f"modeling_{model}.py", "x + 1", "1 + x")
    assert check_kept(package, tmp_path / "cache") == ["MC394", "MC404"]


def test_the_newest_release_is_exact_or_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(UTILS))
    from check_releases import models_of, newest_version

    newest = newest_version()
    if newest is None:
        pytest.skip("there is no package index")
    if newest == version("transformers"):
        pytest.skip(f"the newest release is {newest}, which tests/corpus/test_published.py compares")
    if parse_release(newest) < parse_release(profile_settings().checked_release):
        pytest.skip(f"the package index has nothing newer than {newest}")
    codes = check_kept(Path(models_of(newest, str(tmp_path))).parent, tmp_path / "cache")
    assert not codes or codes[0] == "MC394"
    assert codes.count("MC394") <= 1
