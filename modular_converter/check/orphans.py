"""Find generated files that no modular file gives any more."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from modular_converter.convert.conversion import Conversion
from modular_converter.convert.emit.banner import is_generated
from modular_converter.files.listing import Listings
from modular_converter.files.read import heads
from modular_converter.findings import Finding, Location
from modular_converter.rules import generated_file_orphaned
from modular_converter.settings.values import Settings


_MARK = b"modular_"
"""A part of every banner. Few other files begin with these bytes."""
HEAD_BYTES = 8192
"""The number of bytes of a file that are searched for a banner."""


def orphans(
    folders: Mapping[str, Collection[str]], conversions: Sequence[Conversion], settings: Settings, listings: Listings
) -> list[Finding]:
    """The files with a banner that no modular file gives.

    Args:
        folders: folder of generated files -> folders of their modular files, mostly the same one.
        conversions: all conversions of the check.
        settings: they bound what may be read.
        listings: the names in the folders.
    """
    gives = {conversion.path: conversion.files for conversion in conversions if not conversion.failed}
    given: dict[str, set[str]] = {}
    for path, files in gives.items():
        given.setdefault(os.path.dirname(path), set()).update(map(os.path.basename, files))
    found = []
    for folder, sources in sorted(folders.items()):
        current = frozenset().union(*(given.get(one, ()) for one in sources))
        names = [name for name in listings.of(folder).files if _may_be_generated(name) and name not in current]
        for name, head in heads(folder, names, HEAD_BYTES, settings):
            source = _source_in_banner(head)
            if not source:
                continue
            beside = (os.path.join(one, os.path.basename(source)) for one in sources)
            modular = [one for one in beside if os.path.isfile(one)]
            if gives.keys() >= set(modular):
                reason = "no longer generates this file" if modular else "does not exist"
                found.append(generated_file_orphaned.diagnose(Location(os.path.join(folder, name)), source, reason))
    return found


def _may_be_generated(name: str) -> bool:
    """Whether a file is a Python file, no modular file and no `__init__.py`."""
    return name.endswith(".py") and name != "__init__.py" and not name.startswith("modular_")


def _source_in_banner(head: bytes | Exception) -> str:
    """The modular file that the banner of a file names; "" for a file without a banner, or that may not be read."""
    if isinstance(head, Exception) or _MARK not in head:
        return ""
    source = is_generated(head.decode("utf-8", "replace") + "\n")
    name = os.path.basename(source)
    is_modular = name.startswith("modular_") and name.removesuffix(".py").isidentifier()
    return source if is_modular else ""  # other tools write the same words into their files
