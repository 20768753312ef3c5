"""Ruff programs of other versions for tests: scripts that answer `--version` and let the real ruff do the work."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from modular_converter.convert.emit import formatters


REAL = formatters.own_ruff()
SCRIPT = """\
#!/bin/sh
case "$1" in
    --version) echo x >> {asked}; echo "ruff {version}"; exit 0;;
    format) exec {real} "$@" {options};;
    *) exec {real} "$@";;
esac
"""


def ruff_in(folder: Path, version: str, *options: str) -> Path:
    """A ruff in `folder` of a version, which formats with further options; it counts questions in the file `asked`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "ruff"
    asked = shlex.quote(str(folder / "asked"))
    text = SCRIPT.format(version=version, real=shlex.quote(REAL), options=shlex.join(options), asked=asked)
    path.write_text(text)
    path.chmod(0o755)
    return path


def set_own(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """Make a program the ruff of this environment."""
    monkeypatch.setattr(formatters, "own_ruff", lambda: str(path))
