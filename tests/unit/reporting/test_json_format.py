"""The report for programs."""

from __future__ import annotations

import json

from modular_converter.findings import Location, Severity
from modular_converter.reporting import render
from modular_converter.rules import base_classes


def test_every_field_is_there() -> None:
    location = Location("/project/models/new/modular_new.py", 3, 7, 3, 13)
    found = base_classes.unknown_parent(location, "OldMlp", "modeling_old.py", candidates=["OldMLP"])
    found = found.with_source("\n\nclass Néw(OldMlp):\n").with_severity(Severity.WARNING)
    assert json.loads(render("json", [found], cwd="/project")) == [
        {
            "code": "MC105",
            "name": "unknown-parent",
            "severity": "warning",
            "message": "`OldMlp` is not defined in modeling_old.py",
            "help": "Did you mean `OldMLP`? Import a name from the file that defines it.",
            "path": "models/new/modular_new.py",
            "line": 3,
            "column": 7,
            "end_line": 3,
            "end_column": 13,
            "source_line": "class Néw(OldMlp):",
            "related": [],
            "fix": None,
        }
    ]


def test_no_findings_are_an_empty_list() -> None:
    assert render("json", []) == "[]\n"
