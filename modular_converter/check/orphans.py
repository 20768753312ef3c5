"""Generated files without a modular file that gives them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence

from modular_converter.convert.conversion import Conversion
from modular_converter.convert.emit.banner import is_generated
from modular_converter.diagnostics import Diagnostic, Location
from modular_converter.files.listing import Listings
from modular_converter.rules import generated_file_orphaned


_MARK = b"modular_"
"""Stands in every banner, and in few other files."""
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
HEAD_BYTES = 8192
"""How much of a file is read to look for a banner."""


def orphans(folders: Mapping[str, str], conversions: Sequence[Conversion], listings: Listings) -> list[Diagnostic]:
    """Files with a banner that no modular file gives.

    Args:
        folders: where generated files lie -> where their modular files do, most often the same.
    """
    gives = {conversion.path: conversion.files for conversion in conversions if not conversion.failed}
    given = {path for files in gives.values() for path in files}
    beside = {folder: where for folder, where in folders.items() if folder != where}
    found = []
    for path in _python_files(folders, listings):
        folder = os.path.dirname(path)
        source_folder = beside.get(folder, folder)
        if os.path.join(source_folder, os.path.basename(path)) in given or _MARK not in (head := _head(path)):
            continue
        source = is_generated(head.decode("utf-8", "replace") + "\n")
        name = os.path.basename(source)
        modular = os.path.join(source_folder, name)
        if not (
            name.startswith("modular_") and name.removesuffix(".py").isidentifier()
        ):  # the same words stand in files that other tools generate
            continue
        if not os.path.isfile(modular):
            reason = "does not exist"
        elif modular in gives:
            reason = "no longer gives this file"
        else:
            continue
        found.append(generated_file_orphaned.diagnose(Location(path), source, reason))
    return found


def _python_files(folders: Collection[str], listings: Listings) -> Iterator[str]:
    """The Python files in folders, without those that are never generated: modular files and `__init__.py`."""
    for folder in sorted(folders):
        for name in listings.of(folder).files:
            if name.endswith(".py") and name != "__init__.py" and not name.startswith("modular_"):
                yield f"{folder}{os.sep}{name}"


def _head(path: str) -> bytes:
    try:
        handle = os.open(path, _FLAGS)
    except OSError:
        return b""
    try:
        return os.read(handle, HEAD_BYTES)
    except OSError:  # a pipe without a writer
        return b""
    finally:
        os.close(handle)
