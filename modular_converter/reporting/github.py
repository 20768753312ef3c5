"""The report as GitHub workflow commands, which become annotations beside the lines of a pull request."""

from __future__ import annotations

from collections.abc import Iterable

from modular_converter.findings import Finding, Location
from modular_converter.reporting.display import escaped, in_checkout, names_a_file


def render(findings: Iterable[Finding], folder: str) -> str:
    """One command a line. Source: "Workflow commands for GitHub Actions", setting an error or warning message."""
    return "".join(_command(finding, folder) + "\n" for finding in findings)


def _command(finding: Finding, folder: str) -> str:
    location = finding.location
    properties = _place(location, folder) if names_a_file(location.path) else {}
    properties["title"] = f"{finding.code} {finding.rule.name}"
    message = f"{finding.message}\n{finding.help}" if finding.help else finding.message
    listed = ",".join(f"{key}={_escape_property(value)}" for key, value in properties.items())
    shown = "\n".join(map(escaped, message.replace("\r\n", "\n").split("\n")))
    return f"::{finding.severity.value} {listed}::{_escape(shown)}"


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
