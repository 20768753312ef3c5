"""MC401: a generated file that differs from the conversion of its modular file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from modular_converter.findings import Finding, Location, Rule, Severity, first_of


NAMED = 3
"""Definitions that a message names; the rest are counted."""

RULE = Rule(
    code="MC401",
    name="generated-file-differs",
    severity=Severity.ERROR,
    summary="a generated file differs from the conversion of its modular file",
    explanation="""\
Either the generated file was edited by hand, or the modular file or a file that it builds on has changed since the
last conversion. The next conversion would overwrite the generated file.

Put edits into the modular file. Then run `check-modular-conversion --write`, and commit the files that it writes.
""",
)


def diagnose(
    location: Location, modular: str, definitions: Sequence[str] | None, cause: str, *, in_layout: bool = False
) -> Finding:
    """`location` is the first difference in the generated file; `cause` says how it came about.

    Args:
        definitions: the names of the definitions that differ; None for line ends alone.
        in_layout: whether code and comments are the same, and only their layout differs.
    """
    return Finding(
        RULE,
        location,
        f"not what {modular} gives: {_said(definitions, in_layout)}; {cause}",
        help=f"Put edits into {modular}, then run `check-modular-conversion --write`.",
    )


def besides(finding: Finding, shared: Finding) -> Finding:
    """The finding about a file that differs in another way, too, which `shared` tells of many files."""
    return replace(finding, message=f"{finding.message}; {shared.code} tells the rest")


def _said(definitions: Sequence[str] | None, in_layout: bool) -> str:
    if definitions is None:
        return "only line ends differ (`\\r\\n`, or none at the end of the file)"
    named = first_of([f"`{name}`" for name in definitions], NAMED) or "text outside of definitions"
    return f"{named} differ{'' if len(definitions) > 1 else 's'}{' in layout alone' if in_layout else ''}"
