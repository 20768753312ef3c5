"""The report as annotations of a pull request."""

from __future__ import annotations

import pytest

from modular_converter.diagnostics import Diagnostic, Location, Rule, Severity
from modular_converter.reporting import render


RULE = Rule("MC902", "a-warning", Severity.WARNING, "a summary", "an explanation")


@pytest.mark.parametrize(
    ("diagnostic", "command"),
    [
        (
            Diagnostic(RULE, Location("/project/a/m.py", 3, 7, 3, 13), "odd", "Write it."),
            "::warning file=a/m.py,line=3,col=7,endLine=3,endColumn=13,title=MC902 a-warning::odd%0AWrite it.",
        ),
        pytest.param(
            Diagnostic(RULE, Location("m.py", 3, 7, 4, 2), "odd"),
            "::warning file=m.py,line=3,col=7,endLine=4,title=MC902 a-warning::odd",
            id="end columns are for one line only",
        ),
        pytest.param(
            Diagnostic(RULE, Location("a,b:c%.py"), "100%: a, b\r\nc", severity_override=Severity.ERROR),
            "::error file=a%2Cb%3Ac%25.py,line=1,col=1,title=MC902 a-warning::100%25: a, b%0D%0Ac",
            id="escapes",
        ),
        pytest.param(
            Diagnostic(RULE, Location("--changed-since"), "odd"),
            "::warning title=MC902 a-warning::odd",
            id="a place that is no file",
        ),
    ],
)
def test_one_command_a_line(diagnostic: Diagnostic, command: str) -> None:
    assert render("github", [diagnostic], cwd="/project") == command + "\n"
