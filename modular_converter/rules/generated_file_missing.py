"""MC402: a modular file whose generated file does not exist."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity


RULE = Rule(
    code="MC402",
    name="generated-file-missing",
    severity=Severity.ERROR,
    summary="a modular file was never converted, or its generated file was removed",
    explanation="""\
The conversion of the modular file gives a file that does not exist, so the model cannot be imported.

Run `check-modular-conversion --write`, and commit the files that it writes.
""",
)


def diagnose(location: Location, modular: str) -> Finding:
    """`location` is the generated file that should be there."""
    return Finding(
        RULE,
        location,
        f"{modular} gives this file, but it does not exist",
        help="Run `check-modular-conversion --write`.",
    )
