"""The release of the package that a folder lies in, read from its text, and the conventions of older releases."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from modular_converter.settings.parent_folders import upwards
from modular_converter.settings.regular_file import read_head


Release = tuple[int, ...]
MOST_BYTES = 1_000_000
_VERSION = re.compile(r"""^__version__\s*(?::\s*str\s*)?=\s*["']([0-9][^"'\n]*)["']""", re.MULTILINE)


def parse_release(version: str) -> Release:
    """`5.18.0.dev0` -> `(5, 18, 0)`: the leading numbers, which is all that conventions depend on."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def release_of(folder: str, package: str) -> Release:
    """The release of the named package that a folder lies in; `()` outside the package or without a version."""
    for above in upwards(folder):
        if os.path.basename(above) == package:
            try:
                head = read_head(os.path.join(above, "__init__.py"), MOST_BYTES)
            except OSError:
                continue
            match = _VERSION.search(head.decode("utf-8", "replace"))
            if match:
                return parse_release(match[1])
    return ()


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
