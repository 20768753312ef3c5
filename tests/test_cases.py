"""Golden cases: each folder of `cases/` holds models, a modular file and, under `expected/`, what is generated from it.

A new case needs no code: add the folder, run with `UPDATE_CASES=1`, and read what appears under `expected/`. A case
with a `pyproject.toml` has settings of its own. `expected/findings.txt` holds the findings of the conversion; with an
error among them nothing is generated. A case whose name ends with `_py312` needs that Python or a newer one.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Mapping

import pytest

from modular_converter.convert.batch import Run
from modular_converter.settings.load import load_settings, profile_settings
from modular_converter.settings.values import Settings, is_modular


CASES = pathlib.Path(__file__).parent / "cases"
NAMES = sorted(entry.name for entry in CASES.iterdir() if entry.is_dir())
UPDATE = bool(os.environ.get("UPDATE_CASES"))
SETTINGS: Settings = dataclasses.replace(profile_settings(), banner_root="")


def generate(root: pathlib.Path, settings: Settings) -> dict[str, str]:
    """Convert the modular file below `root`: name of each generated file -> its final text."""
    (modular,) = (path for path in root.glob("**/*.py") if is_modular(str(path), settings))
    (conversion,) = Run(settings, workers=1).convert([str(modular)])
    findings = "".join(
        f"{finding.location.line}:{finding.location.column} {finding.code} {finding.message}\n"
        for finding in conversion.findings
    )
    assert conversion.failed is not bool(conversion.files)
    for path, text in conversion.files.items():
        compile(text, path, "exec", dont_inherit=True)
        pathlib.Path(path).write_bytes(text.encode())
    texts = {os.path.basename(path): text for path, text in conversion.files.items()}
    return texts | ({"findings.txt": findings} if findings else {})


def needs_newer_python(name: str) -> bool:
    """Whether a case, whose name then ends with the version, uses the syntax of a newer Python than this."""
    match = re.search(r"_py3(\d+)$", name)
    return match is not None and sys.version_info < (3, int(match[1]))


def write_expected(folder: pathlib.Path, texts: Mapping[str, str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode())


@pytest.mark.parametrize("name", NAMES)
def test_case(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if needs_newer_python(name):
        pytest.skip("its syntax is newer than this Python")
    shutil.copytree(CASES / name, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("expected"))
    has_settings = (tmp_path / "pyproject.toml").exists()
    (tmp_path / "pyproject.toml").touch()  # the banner tells the path from here
    settings = load_settings(tmp_path) if has_settings else SETTINGS
    monkeypatch.syspath_prepend(str(tmp_path))  # where a case's own package is found
    texts = generate(tmp_path, settings)
    if UPDATE:
        write_expected(CASES / name / "expected", texts)
    expected = {path.name: path.read_bytes().decode() for path in (CASES / name / "expected").iterdir()}
    assert sorted(texts) == sorted(expected)
    for file, text in expected.items():
        assert texts[file] == text, file
    assert generate(tmp_path, settings) == texts, "a second conversion, beside the generated files, differs"
