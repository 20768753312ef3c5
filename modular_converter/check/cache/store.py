"""The folder of the cache. A damaged file counts as absent, and other runs may write to the folder at the same time."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from typing import Any

from modular_converter.files.write import replace_file, sweep
from modular_converter.settings.disk import read_regular


VARIABLE = "MODULAR_CONVERTER_CACHE"
MAX_ENTRIES, MAX_BYTES = 256, 64 * 1024 * 1024
"""Beyond either limit, the oldest entries are removed. An entry has a kilobyte or two for each model of its folder."""
MAX_ENTRY_BYTES = 16 * 1024 * 1024
"""This tool writes no larger file, so such a file is not read."""
_SUFFIX = ".json"
VERSION = ".version"
"""The suffix of a file that holds the version of a formatter. They are tiny and few, and do not count for the limits.
"""
_OURS = re.compile(r"[0-9a-f]{64}\.(json|version)")
"""Only files with such names are removed: the variable may name a folder that is used for other things, too."""


def cache_folder() -> str:
    """`$MODULAR_CONVERTER_CACHE`, else where the platform keeps caches."""
    configured = os.environ.get(VARIABLE)
    if configured:
        return os.path.abspath(configured)
    import platformdirs

    return platformdirs.user_cache_dir("modular-converter", appauthor=False)


def clear(folder: str) -> str:
    """Remove all entries. Returns the reason if some are left, else ""."""
    reason = ""
    try:
        paths = _entries(folder)
    except FileNotFoundError:
        return ""
    except OSError as error:
        return _reason(error)
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:  # another run was quicker
            continue
        except OSError as error:
            reason = _reason(error)
    return reason


def unusable(folder: str) -> str:
    """The reason why nothing can be stored in a folder, else "". A small file is stored to find out."""
    path = os.path.join(folder, f".try.{os.getpid()}.modular-tmp")  # of a killed process a later run removes it
    if os.path.exists(folder) and not os.path.isdir(folder):
        return "it is no folder"
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        replace_file(path, b"\n")
    except OSError as error:
        return _reason(error)
    _remove(path)
    return ""


def read_entry(folder: str, name: str, suffix: str = _SUFFIX) -> bytes | None:
    """The content of an entry; None if it is missing or damaged, or if another user may have written it."""
    path = os.path.join(folder, name + suffix)
    try:
        content = read_regular(path, MAX_ENTRY_BYTES) if _is_own(path) else b""
    except OSError:
        return None
    checksum, body = content[:65], content[65:]
    return body if checksum == digest(body).encode("ascii") + b"\n" else None


def write_entry(folder: str, name: str, body: bytes, suffix: str = _SUFFIX) -> None:
    """Write an entry; an entry of the same name is replaced. Raises `OSError`."""
    if len(body) <= MAX_ENTRY_BYTES - 65:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        replace_file(os.path.join(folder, name + suffix), digest(body).encode("ascii") + b"\n" + body)


def read_values(folder: str, name: str) -> dict[str, Any]:
    """The values of an entry by name; none if it is missing or of another form."""
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(read_entry(folder, name) or b"{}")
        return found if isinstance(found, dict) else {}
    return {}


def keep_values(folder: str, name: str, values: Mapping[str, Any]) -> None:
    """Keep values that JSON knows for later runs. A folder that cannot be written to is no error."""
    with contextlib.suppress(OSError):
        write_entry(folder, name, json.dumps(values, separators=(",", ":")).encode())
        bound(folder)


def bound(folder: str) -> None:
    """Remove the oldest entries beyond the limits, and the temporary files of killed processes."""
    sweep(folder)
    number = size = 0
    try:
        paths = [path for path in _entries(folder) if path.endswith(_SUFFIX)]
    except OSError:
        return
    for _, length, path in sorted(((*_age_and_size(path), path) for path in paths), reverse=True):
        number, size = number + 1, size + length
        if number > MAX_ENTRIES or size > MAX_BYTES:
            _remove(path)


def digest(content: bytes) -> str:
    """The SHA-256 hash of a content, as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def _is_own(path: str) -> bool:
    """Whether a file belongs to this user or to root, and not everyone may write to it. Raises `OSError`."""
    facts = os.stat(path)
    return os.name == "nt" or (facts.st_uid in (0, os.geteuid()) and not facts.st_mode & stat.S_IWOTH)


def _entries(folder: str) -> list[str]:
    """The files of the cache in a folder. Raises `OSError`."""
    return [os.path.join(folder, name) for name in os.listdir(folder) if _OURS.fullmatch(name)]


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__


def _age_and_size(path: str) -> tuple[int, int]:
    try:
        facts = os.stat(path)
    except OSError:
        return 0, 0
    return facts.st_mtime_ns, facts.st_size


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
