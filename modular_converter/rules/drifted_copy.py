"""MC411: a marked copy that differs from its source."""

from __future__ import annotations

from collections.abc import Sequence

from modular_converter.findings import Finding, Location, Rule, Severity, first_of


NAMED = 3
"""Members that a message names; the rest are counted."""

RULE = Rule(
    code="MC411",
    name="drifted-copy",
    severity=Severity.ERROR,
    summary="a definition with a mark `# Copied from …` differs from its source",
    explanation="""\
The comment says that the definition below it is a copy, with the replacements that stand behind `with`. The source has
changed since, or the copy was edited, so that a correction of one does not reach the other.

`modular-convert marks --diff` shows the difference, and `--write` writes what the source says. It leaves a copy whose
calls, in the files that are audited, would not fit its new parameters: `--write-unsafe` writes it, too. Where the copy
is meant to differ, put `# Ignore copy` above the method, or remove the mark. A modular file says the same by
inheritance, and cannot drift: `modular-convert modularize` writes it.
""",
)


def diagnose(
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
    return Finding(
        RULE,
        location,
        f"{subject} differs from its source {source}{where}",
        help=f"{cure} Or put `# Ignore copy` above what is meant to differ.",
    )
