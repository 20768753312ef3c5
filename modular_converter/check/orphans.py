"""Find generated files that no modular file gives any more."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence

from modular_converter.convert.conversion import Conversion
from modular_converter.convert.emit.banner import is_generated
from modular_converter.diagnostics import ConversionError, Diagnostic, Location
from modular_converter.files.listing import Listings
from modular_converter.files.read import read_head_inside
from modular_converter.rules import generated_file_orphaned
from modular_converter.settings.values import Settings


_MARK = b"modular_"
"""A part of every banner. Few other files begin with these bytes."""
HEAD_BYTES = 8192
"""How many bytes of a file are searched for a banner."""


def orphans(
    folders: Mapping[str, Collection[str]], conversions: Sequence[Conversion], settings: Settings, listings: Listings
) -> list[Diagnostic]:
    """The files with a banner that no modular file gives.

    Args:
        folders: folder of generated files -> folders of their modular files, mostly the same one.
        conversions: all conversions of the check.
        settings: they bound what may be read.
        listings: the names in the folders.
    """
    gives = {conversion.path: conversion.files for conversion in conversions if not conversion.failed}
    given = {path for files in gives.values() for path in files}
    found = []
    for folder, path in _python_files(folders, listings):
        name = os.path.basename(path)
        if any(os.path.join(one, name) in given for one in folders[folder]):
            continue
        source = _source_in_banner(path, settings)
        beside = (os.path.join(one, os.path.basename(source)) for one in folders[folder])
        modular = [one for one in beside if os.path.isfile(one)]
        if not source or not gives.keys() >= set(modular):
            continue
        reason = "no longer gives this file" if modular else "does not exist"
        found.append(generated_file_orphaned.diagnose(Location(path), source, reason))
    return found


def _python_files(folders: Collection[str], listings: Listings) -> Iterator[tuple[str, str]]:
    """Folder and path of the Python files that may be generated: no modular files and no `__init__.py`."""
    for folder in sorted(folders):
        for name in listings.of(folder).files:
            if name.endswith(".py") and name != "__init__.py" and not name.startswith("modular_"):
                yield folder, f"{folder}{os.sep}{name}"


def _source_in_banner(path: str, settings: Settings) -> str:
    """The modular file that the banner of a file names; "" for a file without a banner."""
    try:
        head = read_head_inside(path, HEAD_BYTES, settings)
    except (OSError, ConversionError):  # unreadable, no regular file, or a link out of the root
        return ""
    source = is_generated(head.decode("utf-8", "replace") + "\n") if _MARK in head else ""
    name = os.path.basename(source)
    is_modular = name.startswith("modular_") and name.removesuffix(".py").isidentifier()
    return source if is_modular else ""  # other tools write the same words into their files
