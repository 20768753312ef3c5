"""Generated texts that would fail when they are imported, and failures of the formatter and of the tool itself."""

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


UNDEFINED_NAME = Rule(
    "MC313", "undefined-name", "generated code uses a name that it neither defines nor imports", became_error=True
)


def undefined_name(
    location: Location, name: str, place: str, cure: str, *, later: int, is_own: bool = False
) -> Finding:
    """`place` names the definition and the line of the generated file, `cure` says what to write.

    Args:
        later: the line of that file in which the name is defined, further down; 0 for none.
        is_own: whether it is the name of the definition itself.
    """
    fault = f" above its definition in line {later}" if later else ", which is neither defined nor imported there"
    if is_own:
        fault = " before it is defined"
    return UNDEFINED_NAME.finding(location, f"{place} uses `{name}`{fault}", help=cure)


INVALID_RESULT = Rule("MC501", "invalid-result", "the generated code is not valid Python")


def invalid_result(location: Location, reason: str, place: str) -> Finding:
    """`reason` is Python's own; `place` names the definition and the line of the generated file."""
    return INVALID_RESULT.finding(
        location,
        f"the generated code is not valid Python: {reason}, in {place}",
        help="Write out the method that is merged or renamed there. `--formatter none --diff` shows the text.",
    )


TYPING_ONLY_NAME = Rule("MC502", "typing-only-name", "generated code reads a name that only type checkers import")


def typing_only_name(location: Location, name: str, place: str) -> Finding:
    """`place` names the definition and the line of the generated file."""
    return TYPING_ONLY_NAME.finding(
        location,
        f"{place} reads `{name}` when it is imported, but only type checkers import `{name}`",
        help=f'Write `from __future__ import annotations` at the top, or the annotation as "{name}", in quotes.',
    )


MISSING_IN_SIBLING = Rule(
    "MC505", "missing-in-sibling", "a generated file imports a name that its sibling does not have"
)


def missing_in_sibling(
    location: Location, name: str, module: str, place: str, *, parent: tuple[str, str] | None = None
) -> Finding:
    """`module` is the sibling, `.configuration_new`; `place` names the definition and line of the generated file.

    `parent` is what `name` was before renaming, with its module, where a neighbour imports it.
    """
    define = f"Define `{name}` in the modular file"
    if parent and name[:1].isupper() and not name.isupper():  # a class, and no constant
        define += f" (`from {parent[0]} import {parent[1]}`, `class {name}({parent[1]})`)"
    return MISSING_IN_SIBLING.finding(
        location,
        f"{place} imports `{name}` from `{module}`, which does not have it",
        help=f"{define}, or override what uses it.",
    )


def circular(location: Location, name: str, file: str) -> Finding:
    """`file` needs the class `name`, and the file with the class needs classes of `file`: neither can come first."""
    return MISSING_IN_SIBLING.finding(
        location,
        f"{file} would import `{name}` from a file that imports from {file}: the import fails",
        help=f"Take `{name}` out of the classes of {file}: only one of the two files can import from the other.",
    )
