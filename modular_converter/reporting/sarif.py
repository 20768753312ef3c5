"""The report in SARIF 2.1.0, which code scanning services read: the findings and their rules."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from modular_converter.findings import Finding, Rule
from modular_converter.reporting.display import in_checkout, names_a_file
from modular_converter.reporting.json_format import dump
from modular_converter.rules import all_rules, page_text


SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
TOOL = "modular-converter"
SNIPPET = 1000
"""A longer line is not quoted: services refuse large reports."""


def render(findings: Sequence[Finding], folder: str) -> str:
    """One run. Columns are counted in Unicode code points."""
    rules = all_rules()
    positions = {rule.code: position for position, rule in enumerate(rules)}
    driver = {"name": TOOL, "rules": [_descriptor(rule) for rule in rules], **_version()}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(one, positions[one.code], folder) for one in findings if names_a_file(one.location.path)],
        **_invocations([one for one in findings if not names_a_file(one.location.path)]),
    }
    report = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return dump(report)


def _invocations(findings: Sequence[Finding]) -> dict[str, Any]:
    """A finding about the run and not about a file: code scanning refuses a result without a file."""
    if not findings:
        return {}
    notes = [
        {"descriptor": {"id": one.code}, "level": one.severity.value, "message": {"text": _message(one)}}
        for one in findings
    ]
    succeeded = not any(one.is_error for one in findings)
    return {"invocations": [{"executionSuccessful": succeeded, "toolExecutionNotifications": notes}]}


def _message(finding: Finding) -> str:
    return f"{finding.message}\n{finding.help}" if finding.help else finding.message


def _version() -> dict[str, str]:
    import importlib.metadata

    try:
        return {"version": importlib.metadata.version(TOOL)}
    except importlib.metadata.PackageNotFoundError:  # run from a source tree that is not installed
        return {}


def _descriptor(rule: Rule) -> dict[str, Any]:
    explanation = page_text(rule).explanation
    return {
        "id": rule.code,
        "name": "".join(part.capitalize() for part in rule.name.split("-")),
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": explanation},
        "help": {"text": explanation, "markdown": explanation},
        "defaultConfiguration": {"level": rule.severity.value},
    }


def _result(finding: Finding, position: int, folder: str) -> dict[str, Any]:
    location = finding.location
    region: dict[str, Any] = {"startLine": location.line, "startColumn": location.column}
    if location.end_line is not None and location.end_column is not None:
        region |= {"endLine": location.end_line, "endColumn": location.end_column}
    if 0 < len(finding.source_line) <= SNIPPET:
        region["snippet"] = {"text": finding.source_line}
    places = [_place(one.path, {"startLine": one.line}, folder) for one in finding.related]
    return {
        "ruleId": finding.code,
        "ruleIndex": position,
        "level": finding.severity.value,
        "message": {"text": _message(finding)},
        "locations": [_place(location.path, region, folder)],
        **({"relatedLocations": places} if places else {}),
        **_fixes(finding, folder),
    }


def _place(path: str, region: Mapping[str, Any], folder: str) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": {"uri": _uri(path, folder)}, "region": region}}


def _fixes(finding: Finding, folder: str) -> dict[str, Any]:
    """The fix, as the edits that a viewer may offer."""
    if finding.fix is None:
        return {}
    replacements = [
        {
            "deletedRegion": {
                "startLine": edit.line,
                "startColumn": edit.column,
                "endLine": edit.end_line,
                "endColumn": edit.end_column,
            },
            "insertedContent": {"text": edit.text},
        }
        for edit in finding.fix.edits
    ]
    change = {"artifactLocation": {"uri": _uri(finding.location.path, folder)}, "replacements": replacements}
    fix = {
        "description": {"text": finding.fix.title},
        "artifactChanges": [change],
        "properties": {"applicability": finding.applicability},
    }
    return {"fixes": [fix]}


def _uri(path: str, folder: str) -> str:
    """A URI reference: relative to the checkout inside of it, a file URI elsewhere. Its bytes need not be UTF-8."""
    from urllib.parse import quote

    place = in_checkout(path, folder)
    quoted = quote(os.fsencode(place))
    if place.startswith("/"):
        return f"file://{quoted}"
    if place[1:3] == ":/":
        return f"file:///{place[:2]}{quote(os.fsencode(place[2:]))}"
    return quoted
