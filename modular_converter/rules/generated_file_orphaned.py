"""MC403: a file with the banner of a generated file that no modular file generates."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity


RULE = Rule(
    code="MC403",
    name="generated-file-orphaned",
    severity=Severity.ERROR,
    summary="no modular file generates a file with the banner of generated files",
    explanation="""\
The comment at the top names a modular file that does not exist, or that no longer generates this file. No check keeps
the file up to date, but the comment forbids editing it.

Remove the file, restore the modular file, or remove the comment and maintain the file by hand. `--write` never deletes
files.
""",
)


def diagnose(location: Location, modular: str, reason: str) -> Finding:
    """`modular` is the file that the banner names; `reason` says why it does not generate this file."""
    return Finding(
        RULE,
        location,
        f"its banner says that it is generated from {modular}, which {reason}",
        help="Remove it, or remove its banner to go on by hand.",
    )
