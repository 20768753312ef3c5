"""The release of the package that a folder lies in, read from its text, and the conventions of older releases."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from modular_converter.findings import locate_word
from modular_converter.settings.parent_folders import upwards
from modular_converter.settings.regular_file import read_head
from modular_converter.settings.values import PackageRelease, Settings


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
