"""Comments `# modular: ignore`."""

from __future__ import annotations

from modular_converter.findings import Edit, Finding, Fix, Location, Rule, split_lines
from modular_converter.rules import NotIgnorableError, UnknownRuleError, ignorable_prefix
from modular_converter.rules._words import subject


UNUSED_IGNORE = Rule("MC391", "unused-ignore", "a comment `# modular: ignore[…]` silences nothing")


def unused_ignore(location: Location, entry: str) -> Finding:
    """`location` is the comment; `entry` is a code, name or prefix in it."""
    return UNUSED_IGNORE.finding(
        location,
        f"there is no finding of `{entry}` on this line",
        help=f"Remove `{entry}` from the comment, or move the comment to the line of the finding.",
    )


def fix_unused_ignore(text: str, finding: Finding) -> Fix | None:
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


BAD_IGNORE = Rule(
    "MC392", "bad-ignore", "a comment `# modular: ignore[…]` names no rule, or a rule that cannot be ignored"
)


def resolve_code(location: Location, entry: str) -> tuple[str, Finding | None]:
    """The code or prefix that an entry of the comment means, and the finding about an entry that means none."""
    try:
        return ignorable_prefix(entry), None
    except (UnknownRuleError, NotIgnorableError) as error:
        return "", bad_ignore(location, str(error))


def bad_ignore(location: Location, reason: str) -> Finding:
    """`location` is the comment; `reason` is a sentence about one of its entries."""
    return BAD_IGNORE.finding(
        location,
        f"this comment silences nothing: {reason}",
        help="Correct the comment, or remove it. `modular-convert --list-rules` shows which rules can be ignored.",
    )


def names_none(location: Location) -> Finding:
    """The comment has no brackets, or nothing in them."""
    return bad_ignore(location, "it names no rule; write `# modular: ignore[MC307]`")
