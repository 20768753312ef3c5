"""MC391: a comment `# modular: ignore[…]` on a line without such a finding."""

from __future__ import annotations

from modular_converter.findings import Edit, Finding, Fix, Location, Rule, Severity, split_lines
from modular_converter.rules._edits import subject
from modular_converter.rules._examples import NEW_MLP, OLD_MLP, examples


RULE = Rule(
    code="MC391",
    name="unused-ignore",
    severity=Severity.WARNING,
    summary="a comment `# modular: ignore[…]` silences nothing",
    explanation="""\
The line of the comment has no finding of the rule that the comment names. Most often the cause of the finding is gone.
A comment that stays would silence the next finding there, which nobody has looked at.

Remove the rule from the comment, and a comment without rules as a whole. If the finding still exists, move the comment
to the line that the finding names.
""",
    examples=examples(
        OLD_MLP,
        bad="""\
from ..old.modeling_old import OldMLP


class NewMLP(OldMLP):  # modular: ignore[MC307]
    pass


__all__ = ["NewMLP"]
""",
        good=NEW_MLP,
    ),
)


def diagnose(location: Location, entry: str) -> Finding:
    """`location` is the comment; `entry` is a code, name or prefix in it."""
    return Finding(
        RULE,
        location,
        f"there is no finding of `{entry}` on this line",
        help=f"Remove `{entry}` from the comment, or move the comment to the line of the finding.",
    )


def fix(text: str, finding: Finding) -> Fix | None:
    """Remove the entry from the comment, or the comment with its last entry. The line stays, as in generated files."""
    place, entry = finding.location, subject(finding)
    line = split_lines(text)[place.line - 1]
    start, end = place.column - 1, (place.end_column or 0) - 1
    before, comment, behind = line[:start], line[start:end], line[end:]
    opening, bracket, rest = comment.partition("[")
    entries = [one.strip() for one in rest.removesuffix("]").split(",") if one.strip()]
    if not bracket or entries.count(entry) != 1:
        return None
    if len(entries) > 1:
        left = ", ".join(one for one in entries if one != entry)
        edit = Edit(place.line, place.column, place.line, end + 1, f"{opening}[{left}]")
        return Fix(f"Remove `{entry}` from the comment", (edit,))
    if behind.strip():
        return None
    return Fix("Remove the comment", (Edit(place.line, len(before.rstrip()) + 1, place.line, len(line) + 1, ""),))
