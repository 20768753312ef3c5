"""Diagnostics as plain values and back, without loss, for the cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modular_converter.diagnostics import Diagnostic, Location, Severity
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
    ]


def unpack_diagnostic(values: Sequence[Any]) -> Diagnostic:
    """The diagnostic that `pack_diagnostic` was given. Raises `ValueError`, `TypeError` or `LookupError` for others."""
    name, (path, line, column, end_line, end_column), message, help, source_line, override = values
    texts, numbers, optional = (name, path, message, help, source_line), (line, column), (end_line, end_column)
    if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
        raise TypeError(values)
    if not all(number is None or type(number) is int for number in optional):
        raise TypeError(values)
    location = Location(path, line, column, end_line, end_column)
    severity = Severity(override) if override is not None else None
    return Diagnostic(by_name(name), location, message, help, source_line, severity)
