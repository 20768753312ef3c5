"""Render findings for people, editors and CI. Rendering returns text; the command decides where it goes."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable
from typing import Any, TextIO

from modular_converter.findings import Finding


FORMATS = ("text", "json", "github", "sarif")


def render(format: str, findings: Iterable[Finding], *, color: bool = False, cwd: str | None = None) -> str:
    """The report in one of `FORMATS`, ending with a line break unless it is empty.

    Ordered by path, line, column and code, whatever order the findings come in; in text, errors come last: there a
    person looks first. Paths inside `cwd`, by default the current directory, are shown relative to it. `color` is for
    text on a terminal. Raises `ValueError` for a format that there is not.
    """
    ordered = sorted(findings, key=lambda finding: finding.sort_key)
    folder = os.getcwd() if cwd is None else cwd
    if format not in FORMATS:
        raise ValueError(f"unknown report format {format!r}; there are {', '.join(FORMATS)}")
    form: Any = importlib.import_module(f"{__name__}.{'json_format' if format == 'json' else format}")
    if format == "text":
        ordered.sort(key=lambda finding: (not finding.rule.is_first, finding.is_error))
    made: str = (form.render_rich if format == "text" and color else form.render)(ordered, folder)
    return made


def wants_color(stream: TextIO) -> bool:
    """Whether a stream is a terminal that shows colours. `NO_COLOR` turns them off, `FORCE_COLOR` turns them on."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


__all__ = ["FORMATS", "render", "wants_color"]
