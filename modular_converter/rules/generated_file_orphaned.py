"""MC403: a file with the banner of a generated one that nothing generates."""

from __future__ import annotations

from modular_converter.diagnostics import Diagnostic, Location, Rule, Severity


RULE = Rule(
    code="MC403",
    name="generated-file-orphaned",
    severity=Severity.ERROR,
    summary="a file says that it is generated, and nothing generates it",
    explanation="""\
The banner names a modular file that is gone, or that no longer gives this file. No check keeps the file current, and
its banner forbids to edit it.

Remove the file, bring the modular file back, or remove the banner to go on by hand. `--fix` never deletes a file.
""",
)


def diagnose(location: Location, modular: str, reason: str) -> Diagnostic:
    """`modular` is the file that the banner names; `reason` says what became of it."""
    return Diagnostic(
        RULE,
        location,
        f"its banner says that it is generated from {modular}, which {reason}",
        help="Remove it, or remove its banner to go on by hand.",
    )
