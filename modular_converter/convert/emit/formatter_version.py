"""The version of the formatter in use, found without loading what runs it: a check of current files needs no more."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys

from modular_converter.convert.emit.formatters import load_formatter
from modular_converter.diagnostics import ConversionError
from modular_converter.rules import formatter_failed
from modular_converter.settings.values import Settings


EDGE_BYTES = 65536
"""How much of a program is read at either end. Ruff has tens of megabytes; the linker's identifier is at the start."""


def formatter_stamp(settings: Settings) -> str:
    """A text that changes when the formatter does, for the key of a cache. Raises `ConversionError` (MC115)."""
    if settings.formatter == "ruff":
        return ruff_stamp()  # without the modules that run ruff, which a check of current files does not need
    return load_formatter(settings.formatter).stamp()


def ruff_stamp() -> str:
    """The path and size of the ruff program, and a hash of both its ends. Raises `ConversionError` (MC115)."""
    path = find_ruff()
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        edges = file.read(EDGE_BYTES)
        file.seek(max(0, size - EDGE_BYTES))
        edges += file.read(EDGE_BYTES)
    return f"{path} {size} {hashlib.sha256(edges).hexdigest()}"


@functools.lru_cache(maxsize=1)
def find_ruff() -> str:
    """The ruff program of this environment: beside the interpreter, else where its package says, else on the PATH."""
    if sys.executable:
        beside = os.path.join(os.path.dirname(sys.executable), "ruff.exe" if os.name == "nt" else "ruff")
        if os.path.isfile(beside) and os.access(beside, os.X_OK):
            return beside
    with contextlib.suppress(ImportError, FileNotFoundError):
        from ruff.__main__ import find_ruff_bin  # type: ignore[import-untyped]

        return str(find_ruff_bin())
    import shutil

    found = shutil.which("ruff")
    if found is None:
        raise ConversionError(formatter_failed.missing("ruff"))
    return found
