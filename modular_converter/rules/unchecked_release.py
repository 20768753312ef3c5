"""MC394: a release of the package that is newer than the profile has been checked with."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity


RULE = Rule(
    code="MC394",
    name="unchecked-release",
    severity=Severity.WARNING,
    is_first=True,
    summary="the package has a newer release than the profile has been checked with",
    explanation="""\
A release may bring a convention that this tool does not know: a decorator that is kept, another order of members. Then
the files of the package are right, and the conversion is not. So in a release that is newer than those the profile has
been checked with, `--write`, `--watch` and `modular-convert` change no file that exists; new files are written, and
the check compares as usual. A development version counts as the release it leads to, an unreadable one as newer.

Update modular-converter. If there is no version yet that knows the release, read the differences that the check finds,
and accept the release: `accept-release = "5.25"` in `[tool.modular-converter]` (5.25.x and older; `"5"`: all of 5.x),
or `--accept-release 5.25` for one run. The finding is an error where it has kept a file from being changed.
""",
)


def diagnose(location: Location, package: str, release: str, checked: str, *, keeps_files: bool) -> Finding:
    """`location` is where the package says its release.

    Args:
        package: its name.
        release: its version; "" where it cannot be read.
        checked: the newest release that the profile has been checked with.
        keeps_files: whether it has kept a file from being changed.
    """
    said = f"{package} {release} is newer than {checked}" if release else f"the version of {package} cannot be read"
    accepted = ".".join(release.split(".")[:2]) or checked
    finding = Finding(
        RULE,
        location,
        f"{said}; generated files have been checked up to {package} {checked}, and a newer release may have other "
        f"conventions{', so no file that exists was changed' if keeps_files else ''}",
        help="Update modular-converter. Or read the differences that the check finds, and accept the release: "
        f'`accept-release = "{accepted}"` in `[tool.modular-converter]`, or `--accept-release {accepted}`.',
    )
    return finding.with_severity(Severity.ERROR) if keeps_files else finding
