"""What fails without a mistake in the modular file: the formatter, and the tool itself."""

from __future__ import annotations

import traceback
from dataclasses import replace

from modular_converter.findings import Finding, Location, Rule


FORMATTER_FAILED = Rule("MC115", "formatter-failed", "the formatter is missing or failed")


def missing(formatter: str, *, otherwise: str = "convert with `--formatter none`") -> Finding:
    """The program or package `formatter` is not installed; `otherwise` is what helps instead of installing it."""
    return FORMATTER_FAILED.finding(
        Location(formatter),
        f"the formatter `{formatter}` is not installed in this environment",
        help=f"Run `pip install {formatter}`, or {otherwise}.",
    )


def formatter_failed(location: Location, formatter: str, reason: str) -> Finding:
    """`location` is the formatter's configuration or program; `reason` is what it said, or how it ended."""
    return FORMATTER_FAILED.finding(
        location,
        f"`{formatter}` failed: {reason}",
        help="Correct what the formatter complains about, or convert with `--formatter none`.",
    )


FORMATTER_VERSION = Rule(
    "MC118", "formatter-version", "the formatter has another version than the library is formatted with"
)


def formatter_version(
    location: Location, formatter: str, wanted: str, found: str, *, setting: str = "formatter-version"
) -> Finding:
    """`location` is where the version `wanted` is named, by `setting`; `found` is the version in use."""
    needed = f"{formatter}=={wanted}" if wanted[0].isdigit() else f"{formatter}{wanted}"
    shown = needed if wanted[0].isdigit() else f'"{needed}"'  # a shell would take `>` for a redirection
    return FORMATTER_VERSION.finding(
        location,
        f"this library is formatted with `{formatter}` {wanted}, and this environment has {found}",
        help=f"Run `pip install {shown}`. In `.pre-commit-config.yaml`, give the hook "
        f'`additional_dependencies: ["{needed}"]`. Until then no generated file is written. '
        f"To use another version, set `{setting}` in `[tool.modular-converter]`.",
    )


def with_count(finding: Finding, files: int) -> Finding:
    """The finding of a check, with the number of generated files that differ by formatting alone."""
    if not files:
        return finding
    counted = "1 generated file differs" if files == 1 else f"{files} generated files differ"
    return replace(finding, message=f"{finding.message}; {counted} by formatting alone")


INTERNAL_ERROR = Rule("MC199", "internal-error", "the converter itself failed")


def internal_error(location: Location, error: BaseException, *, class_name: str = "") -> Finding:
    """`location` and `class_name` say what was being worked on. `error` is being handled: it has its traceback."""
    where = f" while working on class `{class_name}`" if class_name else ""
    detail = f": {error}" if str(error) else ""
    return INTERNAL_ERROR.finding(
        location,
        f"internal error{where}: {type(error).__name__}{detail}",
        help="This is a bug in modular-converter. Please report it with this file and the traceback, which "
        "`modular-convert --verbose` prints.",
        details="".join(traceback.format_exception(error)),
    )
