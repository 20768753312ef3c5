"""MC120: a line that a file does not have."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity


RULE = Rule(
    code="MC120",
    name="unknown-line",
    severity=Severity.ERROR,
    summary="a line is asked for that the file does not have",
    explanation="""\
`modular-convert where FILE:LINE` tells where a line comes from. Lines count from 1, and this file has fewer of them.

The number may be that of an older version of the file: a traceback of an installed library, for example, speaks of the
installed file and not of the one in the checkout.
""",
)


def diagnose(location: Location, lines: int) -> Finding:
    """`location` is the line that was asked for; `lines` is the number of lines that the file has."""
    return Finding(
        RULE,
        location,
        f"there is no line {location.line}: this file has {lines}",
        help=f"Give a line from 1 to {lines}." if lines else "This file is empty.",
    )
