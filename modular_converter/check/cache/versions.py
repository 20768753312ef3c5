"""The versions of ruff programs, remembered by their content: a check of current files starts no program."""

from __future__ import annotations

import contextlib
import re

from modular_converter.check.cache import store
from modular_converter.convert.emit.formatter_version import VersionOf, program_stamp, ruff_version


VERSION = re.compile(rb"\d[\w.+-]{0,40}")
"""The form of a stored version. An entry of another form is ignored."""


def remembered_versions(folder: str | None) -> VersionOf:
    """`ruff_version`, which asks each program once and stores the answer in the folder of the cache (None: nowhere)."""

    def version_of(path: str) -> str:
        if folder is None:
            return ruff_version(path)
        name = store.digest(f"the version of {program_stamp(path)}".encode("utf-8", "surrogatepass"))
        known = store.read_entry(folder, name, store.VERSION)
        if known and VERSION.fullmatch(known):
            return known.decode("ascii")
        version = ruff_version(path)
        with contextlib.suppress(OSError):
            store.write_entry(folder, name, version.encode("ascii", "replace"), store.VERSION)
        return version

    return version_of
