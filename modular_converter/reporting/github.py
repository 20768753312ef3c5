"""The report as GitHub workflow commands, which become annotations beside the lines of a pull request."""

from __future__ import annotations

from collections.abc import Iterable

from modular_converter.diagnostics import Diagnostic, Location
from modular_converter.reporting.paths import in_checkout, names_a_file
from modular_converter.reporting.safe import escaped


def render(diagnostics: Iterable[Diagnostic], folder: str) -> str:
    """One command a line. Source: "Workflow commands for GitHub Actions", setting an error or warning message."""
    return "".join(_command(diagnostic, folder) + "\n" for diagnostic in diagnostics)


def _command(diagnostic: Diagnostic, folder: str) -> str:
    location = diagnostic.location
    properties = _place(location, folder) if names_a_file(location.path) else {}
    properties["title"] = f"{diagnostic.code} {diagnostic.rule.name}"
    message = f"{diagnostic.message}\n{diagnostic.help}" if diagnostic.help else diagnostic.message
    listed = ",".join(f"{key}={_escape_property(value)}" for key, value in properties.items())
    shown = "\n".join(map(escaped, message.replace("\r\n", "\n").split("\n")))
    return f"::{diagnostic.severity.value} {listed}::{_escape(shown)}"


def _place(location: Location, folder: str) -> dict[str, str]:
    place = {
        "file": in_checkout(location.path, folder),
        "line": str(location.line),
        "col": str(location.column),
    }
    if location.end_line is not None:
        place["endLine"] = str(location.end_line)
    if location.end_column is not None and location.end_line == location.line:  # columns are for one line only
        place["endColumn"] = str(location.end_column)
    return place


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escape_property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
