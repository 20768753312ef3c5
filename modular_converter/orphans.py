"""Generated files without a modular file that gives them."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Sequence

from modular_converter.diagnostics import Diagnostic, Location
from modular_converter.emit.banner import is_generated
from modular_converter.records import Conversion


_MODULAR = re.compile(r"modular_\w+\.py$")
HEAD_BYTES = 8192
"""How much of a file is read to look for a banner."""


def orphans(folders: Collection[str], conversions: Sequence[Conversion]) -> list[Diagnostic]:
    """Files in these folders with a banner that no modular file gives."""
    gives = {conversion.path: conversion.files for conversion in conversions if not conversion.failed}
    given = {path for files in gives.values() for path in files}
    found = []
    for path in _python_files(folders):
        if path in given:
            continue
        source = is_generated(_head(path))
        modular = os.path.join(os.path.dirname(path), os.path.basename(source))
        if not _MODULAR.match(os.path.basename(source)):  # the same words stand in files that other tools generate
            continue
        if not os.path.isfile(modular):
            reason = "does not exist"
        elif modular in gives:
            reason = "no longer gives this file"
        else:
            continue
        from modular_converter.rules import generated_file_orphaned

        found.append(generated_file_orphaned.diagnose(Location(path), source, reason))
    return found


def _python_files(folders: Collection[str]) -> Iterator[str]:
    """The Python files in folders, without those that are never generated: modular files and `__init__.py`."""
    for folder in sorted(folders):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            if name.endswith(".py") and name != "__init__.py" and not name.startswith("modular_"):
                yield os.path.join(folder, name)


def _head(path: str) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except OSError:
        return ""
    try:
        return os.read(handle, HEAD_BYTES).decode("utf-8", "replace") + "\n"
    except OSError:  # a folder
        return ""
    finally:
        os.close(handle)
