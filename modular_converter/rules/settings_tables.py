"""Settings that a project or a profile writes, and comments by which an author silences findings."""

from __future__ import annotations

from collections.abc import Iterable

from modular_converter.findings import Edit, Finding, Fix, Location, Rule, Severity, did_you_mean, split_lines
from modular_converter.rules import NotIgnorableError, UnknownRuleError, ignorable_prefix
from modular_converter.rules._words import subject


BAD_SETTING = Rule(
    "MC116", "bad-setting", "a setting in pyproject.toml or a profile is unknown, missing, or has the wrong type"
)


def unknown(location: Location, key: str, candidates: Iterable[str]) -> Finding:
    """`key` is none of `candidates`."""
    known = sorted(candidates)
    return BAD_SETTING.finding(
        location,
        f"unknown setting `{key}`",
        help=did_you_mean(key, known) + f"Known here: {', '.join(known)}.",
    )


def bad_setting(location: Location, key: str, reason: str) -> Finding:
    """`reason` completes the sentence that begins with the key: `must be a string, not 3`."""
    return BAD_SETTING.finding(location, f"setting `{key}` {reason}")


def other_tool(location: Location, required: str, present: str) -> Finding:
    """The project requires another version of this tool."""
    return BAD_SETTING.finding(
        location,
        f"this project requires modular-converter {required}, and this is {present}",
        help="Install a version that fits, or, to move on to this one, change the setting and generate all files anew.",
    )


def no_table(location: Location) -> Finding:
    """The file that `--config` names has no settings."""
    return BAD_SETTING.finding(
        location, "this file has no settings", help="Give it a table `[tool.modular-converter]`."
    )


def misspelt_table(location: Location, name: str) -> Finding:
    """The table `name` has a `_` in place of the `-`."""
    return BAD_SETTING.finding(
        location, f"`[tool.{name}]` is no table of this tool", help="Write `[tool.modular-converter]`."
    )


def unreadable(location: Location, reason: str) -> Finding:
    """The file is no TOML, or no INI file."""
    return BAD_SETTING.finding(
        location, f"cannot read these settings: {reason}", help="Correct the syntax of this file."
    )


def incomplete(location: Location, missing: Iterable[str]) -> Finding:
    """The file is a profile that lacks keys."""
    return BAD_SETTING.finding(
        location,
        f"this profile lacks {', '.join(f'`{key}`' for key in missing)}",
        help='Write each, with `""` or an empty list where the library has no such convention.',
    )


def mixed(one: str, other: str) -> Finding:
    """Files of two projects were given; `other` may be "" for files without a project."""
    beside = other or "files that lie in no project with settings"
    return BAD_SETTING.finding(
        Location(one),
        f"these settings do not hold for {beside}",
        help="Convert or check each project in a run of its own.",
    )


UNCHECKED_RELEASE = Rule(
    "MC394",
    "unchecked-release",
    "the package has a newer release than the profile has been checked with",
    is_first=True,
)


def unchecked_release(location: Location, package: str, release: str, checked: str, *, keeps_files: bool) -> Finding:
    """`location` is where the package says its release.

    Args:
        package: its name.
        release: its version; "" where it cannot be read.
        checked: the newest release that the profile has been checked with.
        keeps_files: whether it has kept a file from being changed.
    """
    said = f"{package} {release} is newer than {checked}" if release else f"the version of {package} cannot be read"
    accepted = ".".join(release.split(".")[:2]) or checked
    finding = UNCHECKED_RELEASE.finding(
        location,
        f"{said}; generated files have been checked up to {package} {checked}, and a newer release may have other "
        f"conventions{', so no file that exists was changed' if keeps_files else ''}",
        help="Update modular-converter. Or read the differences that the check finds, and accept the release: "
        f'`accept-release = "{accepted}"` in `[tool.modular-converter]`, or `--accept-release {accepted}`.',
    )
    return finding.with_severity(Severity.ERROR) if keeps_files else finding


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
