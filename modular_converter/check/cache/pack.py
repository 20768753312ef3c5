"""Findings as plain values and back, without loss, for the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modular_converter.findings import Edit, Finding, Fix, Location, Severity
from modular_converter.rules import by_name


def pack_finding(finding: Finding) -> list[Any]:
    """A finding as values that JSON knows."""
    place, override = finding.location, finding.severity_override
    return [
        finding.rule.name,
        [place.path, place.line, place.column, place.end_line, place.end_column],
        finding.message,
        finding.help,
        finding.source_line,
        override.value if override else None,
        [finding.fix.title, finding.fix.edits, finding.fix.changes_generated] if finding.fix else None,
    ]


def unpack_finding(values: Sequence[Any]) -> Finding:
    """The inverse of `pack_finding`. Raises `ValueError`, `TypeError` or `LookupError` for any other value."""
    name, (path, line, column, end_line, end_column), message, help, source_line, override, fix = values
    texts, numbers, optional = (name, path, message, help, source_line), (line, column), (end_line, end_column)
    if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
        raise TypeError(values)
    if not all(number is None or type(number) is int for number in optional):
        raise TypeError(values)
    location = Location(path, line, column, end_line, end_column)
    severity = Severity(override) if override is not None else None
    return Finding(by_name(name), location, message, help, source_line, severity, _unpack_fix(fix))


def _unpack_fix(values: Sequence[Any] | None) -> Fix | None:
    if values is None:
        return None
    title, edits, changes_generated = values
    found = tuple(Edit(*edit) for edit in edits)
    is_right = isinstance(title, str) and all(isinstance(edit.text, str) for edit in found)
    if not is_right or not all(type(number) is int for edit in found for number in edit[:4]):
        raise TypeError(values)
    return Fix(title, found, bool(changes_generated))
