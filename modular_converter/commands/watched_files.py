"""The folders to watch, and stamps that tell whether a file or folder has changed."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence


Stamp = tuple[int, ...]
"""Device, inode, size and time of a file: a new stamp means a changed file. `()` for a missing file."""


def roots(arguments: Sequence[str], models: str | None) -> Iterator[str]:
    """The folders in which the arguments would find new files."""
    for argument in arguments:
        if glob.has_magic(argument):
            yield os.path.abspath(_fixed_part(argument))
        elif os.path.isdir(argument):
            yield os.path.abspath(argument)
        elif os.path.isfile(argument):
            yield os.path.dirname(os.path.abspath(argument))
        elif models:
            yield models


def _fixed_part(pattern: str) -> str:
    """The folder that a glob searches: the part before its first wildcard."""
    while glob.has_magic(pattern):
        pattern = os.path.dirname(pattern)
    return pattern


def identities(folders: Sequence[str]) -> list[Stamp]:
    """Device and inode of each folder: a folder that was removed and made again must be watched again."""
    return [stamp_of(folder)[:2] for folder in folders]


def stamps(paths: Iterable[str]) -> dict[str, Stamp]:
    """The stamp of each file."""
    return {path: stamp_of(path) for path in paths}


def stamp_of(path: str) -> Stamp:
    """The stamp of one file or folder."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
