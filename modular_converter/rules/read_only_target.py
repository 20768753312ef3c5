"""MC113: a generated file that cannot be written."""

from __future__ import annotations

from modular_converter.diagnostics import Diagnostic, Location, Rule, Severity


RULE = Rule(
    code="MC113",
    name="read-only-target",
    severity=Severity.ERROR,
    summary="a generated file cannot be written",
    explanation="""\
The conversion went well, but its result cannot be put in place: the file or its folder is read-only, something else
stands at that path, or the disk is full. The old file, if there was one, is untouched.

Make the target writable (`chmod u+w`), or write elsewhere with `--output-dir DIR`. An installed package is always
treated as read-only.
""",
)


def diagnose(location: Location, reason: str) -> Diagnostic:
    """`location` is the generated file; `reason` is what stands against writing it."""
    return Diagnostic(
        RULE,
        location,
        f"cannot write this file: {reason}",
        help="Make it writable, or write elsewhere with `--output-dir DIR`.",
    )
