"""The report for code scanning."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from modular_converter.findings import Finding, Location, Severity
from modular_converter.reporting import render
from modular_converter.rules import all_rules, input_files, lost_code


URI = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*")


def run_of(*findings: Finding) -> dict[str, Any]:
    report = json.loads(render("sarif", findings, cwd="/project"))
    assert report["version"] == "2.1.0" and report["$schema"].endswith("sarif-2.1.0.json")
    (run,) = report["runs"]
    assert isinstance(run, dict)
    return run


def test_every_rule_is_described() -> None:
    described = run_of()["tool"]["driver"]["rules"]
    assert [entry["id"] for entry in described] == [rule.code for rule in all_rules()]
    for entry, rule in zip(described, all_rules(), strict=True):
        assert entry["shortDescription"]["text"] == rule.summary
        assert entry["defaultConfiguration"]["level"] == rule.severity.value
        assert entry["name"].isalnum() and entry["help"]["markdown"]


def test_a_finding_points_to_its_rule_and_place() -> None:
    found = input_files.cycle(Location("/project/a/m.py", 3, 7, 3, 13), ("a", "b")).with_source("\n\nimport b\n")
    run = run_of(found.with_severity(Severity.WARNING))
    (result,) = run["results"]
    assert run["columnKind"] == "unicodeCodePoints"
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"] == "MC110"
    assert result["level"] == "warning"
    assert result["message"]["text"] == f"{found.message}\n{found.help}"
    (location,) = result["locations"]
    assert location["physicalLocation"] == {
        "artifactLocation": {"uri": "a/m.py"},
        "region": {
            "startLine": 3,
            "startColumn": 7,
            "endLine": 3,
            "endColumn": 13,
            "snippet": {"text": "import b"},
        },
    }


@pytest.mark.parametrize(
    ("path", "uri"),
    [
        ("/project/a b/é#.py", "a%20b/%C3%A9%23.py"),
        ("/elsewhere/m.py", "file:///elsewhere/m.py"),
        ("m.py", "m.py"),
        ("/project/f\udcff/m.py", "f%FF/m.py"),
    ],
)
def test_places_are_uris(path: str, uri: str) -> None:
    (result,) = run_of(Finding(lost_code.UNUSED_DEFINITION, Location(path), "odd"))["results"]
    found = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert found == uri and URI.fullmatch(found)


def test_what_is_about_the_run_is_no_result() -> None:
    run = run_of(input_files.unknown_revision("main", "git knows no commit"))
    assert run["results"] == []
    (invocation,) = run["invocations"]
    assert not invocation["executionSuccessful"]
    (note,) = invocation["toolExecutionNotifications"]
    assert note["descriptor"] == {"id": "MC117"} and "main" in note["message"]["text"]


def test_a_line_without_end_is_not_quoted() -> None:
    found = Finding(lost_code.UNUSED_DEFINITION, Location("m.py"), "odd")
    for line, quoted in (("x" * 1000, True), ("x" * 1001, False)):
        (result,) = run_of(found.with_source(line))["results"]
        assert ("snippet" in result["locations"][0]["physicalLocation"]["region"]) is quoted
