"""The report as a JSON list, for programs: every field of each finding."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from modular_converter.findings import Finding
from modular_converter.reporting.display import shown_posix


_SURROGATE = re.compile("[\ud800-\udfff]")
"""A byte of a path that is not UTF-8."""


def render(findings: Iterable[Finding], folder: str) -> str:
    """A list of objects. Lines and columns count from 1, an end column is exclusive, unknown ends are null."""
    entries = [as_record(finding, folder) for finding in findings]
    return dump(entries)


def dump(value: object) -> str:
    """A value as JSON that can be encoded and does not look like a command in a CI log."""
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    text = text.replace("##[", "#\\u0023[")
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def as_record(finding: Finding, folder: str) -> dict[str, Any]:
    """One finding as an object; `fix` is null where there is no fix."""
    location = finding.location
    return {
        "code": finding.code,
        "name": finding.rule.name,
        "severity": finding.severity.value,
        "message": finding.message,
        "help": finding.help,
        "path": shown_posix(location.path, folder),
        "line": location.line,
        "column": location.column,
        "end_line": location.end_line,
        "end_column": location.end_column,
        "source_line": finding.source_line,
        "related": [{"path": shown_posix(one.path, folder), "line": one.line} for one in finding.related],
        "fix": _fix(finding),
    }


def _fix(finding: Finding) -> dict[str, Any] | None:
    if finding.fix is None:
        return None
    edits = [edit._asdict() for edit in finding.fix.edits]
    return {"title": finding.fix.title, "applicability": finding.applicability, "edits": edits}
