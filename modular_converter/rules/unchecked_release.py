"""MC404: a release of the package that is newer than the profile has been checked with."""

from __future__ import annotations

from modular_converter.findings import Finding, Location, Rule, Severity


RULE = Rule(
    code="MC404",
    name="unchecked-release",
    severity=Severity.WARNING,
    summary="the package has a newer release than the profile has been checked with",
    explanation="""\
A release may bring a convention that this tool does not know: a decorator that is kept, another order of members. Then
the generated files of the package are right, and the conversion is not. So in a release that is newer than those that
the profile has been checked with, `check-modular-conversion --fix`, `modular-convert` and `--watch` change no file that
exists. Files that do not exist yet are written, and the check compares everything as usual. The release is what
`__version__` in the `__init__.py` of the package says; a development version such as `5.25.0.dev0` counts as 5.25.0,
and a version that cannot be read as a newer one. Packages other than that of the profile have no such releases.

Update modular-converter. If there is no version yet that knows the release, run the check: where it finds no difference,
or you have read the differences, accept the release with `accept-release = "5.25"` in `[tool.modular-converter]` (all of
5.25.x, and what is older), or with the option `--accept-release 5.25` for one run. `"5"` accepts all of 5.x, which suits
the main branch of the package itself.

It is an error where it has kept a file from being changed, else a warning.
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
