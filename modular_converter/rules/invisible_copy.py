"""MC393: a comment that is meant as a mark of a copy, but is no valid mark."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity


RULE = Rule(
    code="MC393",
    name="invisible-copy",
    severity=Severity.WARNING,
    summary="a comment about a copy has not the form of a mark, so that no check sees it",
    explanation="""\
A mark is a comment of its own, directly above the `def` or `class`, in this form:
`# Copied from transformers.models.bert.modeling_bert.BertLayer with Bert->Roberta`.

This comment has another form. A reader takes it for a mark, but nothing compares the copy with its source.

Write it in this form, or say in other words where the code comes from.
""",
)


def diagnose(location: Location, reason: str) -> Finding:
    """`reason` says what is wrong with the comment."""
    return Finding(
        RULE,
        location,
        f"nothing compares this copy with its source: {reason}",
        help="Write `# Copied from <package>.<module>.<name> with Old->New` directly above the `def` or `class`.",
    )
