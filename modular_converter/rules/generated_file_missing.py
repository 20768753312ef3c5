"""MC402: a modular file whose generated file is not there."""

from __future__ import annotations

from modular_converter.diagnostics import Diagnostic, Location, Rule, Severity


RULE = Rule(
    code="MC402",
    name="generated-file-missing",
    severity=Severity.ERROR,
    summary="a modular file was never converted, or its generated file was removed",
    explanation="""\
The modular file gives a file that does not exist. Whoever imports the model imports that file.

Run `check-modular-conversion --fix`, and commit what it writes.
""",
)


def diagnose(location: Location, modular: str) -> Diagnostic:
    """`location` is the generated file that should be there."""
    return Diagnostic(
        RULE,
        location,
        f"{modular} gives this file, and it does not exist",
        help="Run `check-modular-conversion --fix`.",
    )
