"""Which formatter is at work. Apart from the formatters themselves, since a check that converts nothing asks for it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import sys

from modular_converter.diagnostics import ConversionError
from modular_converter.rules import formatter_failed
from modular_converter.settings.values import Settings


EDGE_BYTES = 65536
"""How much of a program is read at either end. Ruff has tens of megabytes; the linker's identifier is at the start."""


def formatter_stamp(settings: Settings) -> str:
    """A text that changes when the formatter does, for the key of a cache. Raises `ConversionError` (MC115)."""
    if settings.formatter == "none":
        return "none"
    if settings.formatter == "black":
        from modular_converter.convert.emit import format_black

        return format_black.stamp()
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
