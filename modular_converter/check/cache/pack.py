"""Diagnostics as plain values and back, without loss, for the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modular_converter.diagnostics import Diagnostic, Edit, Fix, Location, Severity
from modular_converter.rules import by_name


def pack_diagnostic(diagnostic: Diagnostic) -> list[Any]:
    """A diagnostic as values that JSON knows."""
    place, override = diagnostic.location, diagnostic.severity_override
    return [
        diagnostic.rule.name,
        [place.path, place.line, place.column, place.end_line, place.end_column],
        diagnostic.message,
        diagnostic.help,
        diagnostic.source_line,
        override.value if override else None,
        [diagnostic.fix.title, diagnostic.fix.edits, diagnostic.fix.changes_generated] if diagnostic.fix else None,
    ]


def unpack_diagnostic(values: Sequence[Any]) -> Diagnostic:
    """The inverse of `pack_diagnostic`. Raises `ValueError`, `TypeError` or `LookupError` for any other value."""
    name, (path, line, column, end_line, end_column), message, help, source_line, override, fix = values
    texts, numbers, optional = (name, path, message, help, source_line), (line, column), (end_line, end_column)
    if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
        raise TypeError(values)
    if not all(number is None or type(number) is int for number in optional):
        raise TypeError(values)
    location = Location(path, line, column, end_line, end_column)
    severity = Severity(override) if override is not None else None
    return Diagnostic(by_name(name), location, message, help, source_line, severity, _unpack_fix(fix))


def _unpack_fix(values: Sequence[Any] | None) -> Fix | None:
    if values is None:
        return None
    title, edits, changes_generated = values
    found = tuple(Edit(*edit) for edit in edits)
    is_right = isinstance(title, str) and all(isinstance(edit.text, str) for edit in found)
    if not is_right or not all(type(number) is int for edit in found for number in edit[:4]):
        raise TypeError(values)
    return Fix(title, found, bool(changes_generated))
