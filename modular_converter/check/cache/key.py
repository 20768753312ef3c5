"""The key of the cache: a hash of everything that decides a conversion, except for the files that it reads.

Only contents and paths count, so the key stays the same after a fresh checkout or install at the same place.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import replace
from typing import Any

import modular_converter
from modular_converter.check.cache import store
from modular_converter.check.cache.store import digest
from modular_converter.convert.emit.formatters import VersionOf, formatter_stamp, program_stamp, ruff_version
from modular_converter.settings.disk import read_regular
from modular_converter.settings.values import Settings
from modular_converter.version import __version__


NO_PART: Mapping[str, Any] = {
    "workers": 0,
    "strict": False,
    "select": (),
    "ignore": (),
    "per_file_ignores": {},
    "package_release": None,  # its conventions are in the other settings
    "accept_release": "",
}
"""Settings that decide no conversion: the cache stores findings before they are left out or made errors.
"""
TOOL = os.path.dirname(os.path.abspath(modular_converter.__file__))
"""The folder of this tool's own files."""
OWN_WING = "parallel"
"""The folder of the tool of which a conversion uses only the checks in `lint`."""
MOST_BYTES = 16_000_000
"""More bytes than any file of the tool or any configuration of a formatter has."""
WING_RULES = os.path.join(TOOL, OWN_WING, "lint")


def key_of(settings: Settings, version_of: VersionOf | None = None) -> str:
    """The key; "" when one of its parts cannot be read. `version_of` is that of `find_ruff`. Raises `ConversionError`
    (MC115) when the formatter is missing.
    """
    if not all(one.ruff_is_followed for one in settings.formattings):
        return ""
    try:
        tool = tool_stamp()
        formatter = (
            formatter_stamp(settings, version_of),
            [(_black_options(one), one.formatter_judges_version) for one in settings.formattings],
        )
        roots = [root for one in settings.formattings for root in (*one.ruff_source_roots, *one.isort_source_roots)]
        sources = [_importable(folder) for folder in dict.fromkeys(roots)]
    except (OSError, ValueError):
        return ""
    facts = (tool, formatter, sources, replace(settings.with_any_formatter, **NO_PART))
    return digest(repr(facts).encode("utf-8", "surrogatepass"))


def tool_stamp() -> tuple[str, str, list[str]]:
    """What changes with this tool and its Python. Raises `OSError` where its own files cannot be read."""
    return (__version__, sys.version, [digest(_content(path)) for path in _own_files()])


def packages_above(folder: str, known: MutableMapping[str, str], is_file: Callable[[str], bool]) -> str:
    """One digit for a folder and for each folder above it: `1` for a package, else `0`. Imports depend on them.

    Args:
        known: the answers so far.
        is_file: `os.path.isfile`, or the same with a memory.
    """
    if folder not in known:
        parent = os.path.dirname(folder)
        above = packages_above(parent, known, is_file) if parent != folder else ""
        known[folder] = f"{int(is_file(f'{folder}{os.sep}__init__.py'))}{above}"
    return known[folder]


def _own_files() -> Iterator[str]:
    for root, skipped in ((TOOL, OWN_WING), (WING_RULES, "")):
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(name for name in folders if name not in (skipped, "__pycache__"))
            yield from (os.path.join(folder, name) for name in sorted(names) if name.endswith((".py", ".toml")))


def _black_options(settings: Settings) -> str:
    if settings.formatter != "black" or not settings.black_config_path:
        return ""
    return digest(_content(settings.black_config_path))


def _importable(folder: str) -> list[str]:
    """The names in a folder that could be imported: they decide which imports are sorted as first-party."""
    try:
        with os.scandir(folder) as found:
            names = [entry.name for entry in found]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return sorted(name for name in names if name.removesuffix(".py").isidentifier())


def _content(path: str) -> bytes:
    return read_regular(path, MOST_BYTES)


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
