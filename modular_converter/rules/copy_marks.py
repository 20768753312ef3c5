"""Comments `# Copied from …`."""

from __future__ import annotations

from collections.abc import Sequence

from modular_converter.findings import Finding, Location, Rule, Severity, first_of


NAMED = 3
"""Members that a message names; the rest are counted."""

DRIFTED_COPY = Rule(
    code="MC411",
    name="drifted-copy",
    severity=Severity.ERROR,
    summary="a definition with a mark `# Copied from …` differs from its source",
)


def drifted_copy(
    location: Location, name: str, source: str, members: Sequence[str], refusal: str = "", *, signature: bool = False
) -> Finding:
    """`members` are the names that differ; `refusal` is the reason why `--write` leaves the copy, if it does.

    Args:
        signature: whether the signature alone differs.
    """
    where = f" in {first_of([f'`{member}`' for member in members], NAMED)}" if members else ""
    subject = f"the signature of `{name}` alone" if signature else f"`{name}`"
    cure = (
        f"It cannot be put right automatically: {refusal}." if refusal else "`--diff` shows how, `--write` writes it."
    )
    return DRIFTED_COPY.finding(
        location,
        f"{subject} differs from its source {source}{where}",
        help=f"{cure} Or put `# Ignore copy` above what is meant to differ.",
    )


DANGLING_COPY = Rule(
    code="MC412",
    name="dangling-copy",
    severity=Severity.ERROR,
    summary="the source of a mark `# Copied from …` does not exist",
)


def dangling_copy(location: Location, source: str, reason: str) -> Finding:
    """`reason` names the part of `source` that does not exist."""
    return DANGLING_COPY.finding(
        location,
        f"the source {source} does not exist: {reason}",
        help="Correct the name, or remove the comment.",
    )


INVISIBLE_COPY = Rule(
    code="MC393",
    name="invisible-copy",
    severity=Severity.WARNING,
    summary="a comment about a copy has not the form of a mark, so that no check sees it",
)


def invisible_copy(location: Location, reason: str) -> Finding:
    """`reason` says what is wrong with the comment."""
    return INVISIBLE_COPY.finding(
        location,
        f"nothing compares this copy with its source: {reason}",
        help="Write `# Copied from <package>.<module>.<name> with Old->New` directly above the `def` or `class`.",
    )
