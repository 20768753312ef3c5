"""Settings that a project or a profile writes."""

from __future__ import annotations

from collections.abc import Iterable

from modular_converter.findings import Finding, Location, Rule, Severity, did_you_mean


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
