"""MC412: a mark whose source does not exist."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity


RULE = Rule(
    code="MC412",
    name="dangling-copy",
    severity=Severity.ERROR,
    summary="the source of a mark `# Copied from …` does not exist",
    explanation="""\
The comment names a definition that is not there: it was renamed, moved or removed. Nothing can say any more whether
the copy below is up to date.

Correct the name, or remove the comment.
""",
)


def diagnose(location: Location, source: str, reason: str) -> Finding:
    """`reason` names the part of `source` that does not exist."""
    return Finding(
        RULE,
        location,
        f"the source {source} does not exist: {reason}",
        help="Correct the name, or remove the comment.",
    )
