"""The version of the formatter that a library is formatted with, with the place where a file says so; the release of
the package that a folder lies in, with the conventions of its older releases.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from modular_converter.findings import locate_word
from modular_converter.settings.disk import read_head, upwards
from modular_converter.settings.keys import BOUND, EXACT_VERSION, MOST_CHARACTERS
from modular_converter.settings.toml_files import TomlFile
from modular_converter.settings.values import PackageRelease, PinnedFormatter, Settings


KEY = "formatter-version"
REQUIRED = "required-version"
"""The option of ruff and of black that names the version for all their runs."""
_COMPARE: Mapping[str, Callable[[list[int], list[int]], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}


def pinned_formatter(
    base: Settings,
    project: TomlFile | None,
    values: Mapping[str, Any],
    ruff: Iterable[TomlFile],
    black: TomlFile | None,
) -> PinnedFormatter | None:
    """The version that the project names, else that of the profile; None where any version will do.

    Args:
        project: the project's file with our table.
        values: that table, by field.
        ruff: the ruff configurations in force, the nearest first; none for the profile's own.
        black: the file with the project's `[tool.black]`.
    """
    formatter = values.get("formatter", base.formatter)
    if project is not None and "formatter_version" in values:
        return PinnedFormatter(formatter, values["formatter_version"], project.place_of(KEY))
    files = [(file, file.ruff) for file in ruff] if formatter == "ruff" else []
    if formatter == "black" and black is not None:
        options = black.tools.get("black")
        files = [(black, options if isinstance(options, dict) else {})]
    for file, options in files:
        if REQUIRED in options:
            version = _requirement(options[REQUIRED], formatter)
            return PinnedFormatter(formatter, version, locate_word(file.path, REQUIRED, file.text))
    return base.pinned_formatter


def allows(requirement: str, version: str) -> bool:
    """Whether a version fits a requirement such as `0.14.10` or `>=0.14,<0.16`. Pre-releases fit no range."""
    if EXACT_VERSION.fullmatch(requirement):
        return version == requirement or (
            requirement.replace(".", "").isdigit() and allows(f"=={requirement}", version)
        )
    numbers = version.split(".")
    return all(map(str.isdecimal, numbers)) and all(
        _is_within([int(number) for number in numbers], *bound.groups(default=""))
        for bound in BOUND.finditer(requirement)
    )


def _is_within(version: list[int], comparison: str, bound: str, wildcard: str) -> bool:
    """Whether a version fits one part of a requirement, as Python packages understand it (PEP 440)."""
    limit = [int(number) for number in bound.split(".")]
    if comparison == "~=":
        return _is_within(version, ">=", bound, "") and version[: len(limit) - 1] == limit[:-1]
    if wildcard:
        version = version[: len(limit)]
    length = max(len(version), len(limit))
    return _COMPARE[comparison](*(one + [0] * (length - len(one)) for one in (version, limit)))


def _requirement(required: object, formatter: str) -> str:
    """`0.14.10` for itself and for `==0.14.10`, else a range without spaces; "" for others, which the formatter judges.

    Black takes a number alone for a major version.
    """
    text = required.replace(" ", "") if isinstance(required, str) else ""
    if EXACT_VERSION.fullmatch(text.removeprefix("==")):
        version = text.removeprefix("==")
        return f"=={version}.*" if formatter == "black" and version.isdigit() else version
    parts = text.split(",")
    return text if all(BOUND.fullmatch(part) for part in parts) and len(text) < MOST_CHARACTERS else ""


Release = tuple[int, ...]
MOST_BYTES = 1_000_000
NAME = "__version__"
_VERSION = re.compile(
    rf"""^{NAME}\s*(?::\s*str\s*)?=\s*(["\'])([0-9]{{1,9}}(?:\.[0-9]{{1,9}})*(?:[-_.+a-z][-_.+a-z0-9]{{0,50}})?)\1[ \t\r]*(?:[;#].*)?$""",
    re.MULTILINE | re.IGNORECASE,
)


def parse_release(version: str) -> Release:
    """`5.18.0.dev0` -> `(5, 18, 0)`: the leading numbers, which is all that conventions depend on."""
    match = re.match(r"\d{1,9}(?:\.\d{1,9})*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def release_of(folder: str, package: str) -> PackageRelease | None:
    """The release of the named package that a folder lies in; None outside the package, and where it says none."""
    for above in (*upwards(folder), *upwards(os.path.realpath(folder))):  # a link may have another name
        if os.path.basename(above) == package:
            path = os.path.join(above, "__init__.py")
            try:
                head = read_head(path, MOST_BYTES)
            except OSError:
                continue
            text = head.decode("utf-8", "replace")
            found = [match[2] for match in _VERSION.finditer(text)]
            if found or re.search(rf"\b{NAME}\b", text):  # imported, joined of parts, set in a block: unreadable
                return PackageRelease(found[-1] if found else "", locate_word(path, NAME, text))
    return None


def is_unchecked(settings: Settings) -> bool:
    """Whether the models lie in a release that is newer than the profile was checked with, or whose version cannot be
    read, and that the project has not accepted.

    A development version counts as the release that it leads to, so the main branch is newer than the last release.
    """
    found = settings.package_release
    if found is None or not settings.checked_release:
        return False
    if not found.version:
        return not settings.accept_release
    known = (settings.checked_release, settings.accept_release)
    return all(_is_newer(parse_release(found.version), parse_release(one)) for one in known)


def _is_newer(release: Release, than: Release) -> bool:
    """Whether a release is newer than another one and all that begin like it: 5.25.1 is not newer than 5.25."""
    return release[: len(than)] > than or not than


def conventions(latest: Mapping[str, Any], older: Iterable[Mapping[str, Any]], release: Release) -> dict[str, Any]:
    """The table of a profile for a release; `()` stands for the latest.

    Args:
        latest: the profile's own table.
        older: tables with a key `before`, the newest first, each of which holds for the releases before that one.
    """
    table = dict(latest)
    for one in older:
        if release and release < parse_release(one["before"]):
            changes = {key: value for key, value in one.items() if key != "before"}
            kinds = {**table["kinds"], **changes.get("kinds", {})}
            table.update(changes, kinds=kinds)
    return table
