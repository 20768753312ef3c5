"""Folders above a file or a folder: models, projects, installed packages; and the bytes of regular files up to a size: a pipe
or a device in the place of a file might never end, so neither is read.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator


PROJECT_MARKS = ("pyproject.toml", ".git")
INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages: settings of a project above them do not hold for the packages."""


def upwards(folder: str) -> Iterator[str]:
    """A folder and all folders above it, the nearest first."""
    yield folder
    while (parent := os.path.dirname(folder)) != folder:
        yield parent
        folder = parent


def is_below(path: str, top: str) -> bool:
    """Whether an absolute path is the folder `top` or lies inside of it. Where links matter, the caller resolves them."""
    return os.path.join(path, "").startswith(os.path.join(os.path.normpath(top), ""))


def repository_above(folder: str) -> str:
    """The nearest folder at or above this one with a `.git`, else that of `project_above`; "" where neither is."""
    repositories = (here for here in upwards(folder) if os.path.exists(os.path.join(here, ".git")))
    return next(repositories, "") or project_above(folder)


def project_above(folder: str) -> str:
    """The nearest folder at or above this one that is a project's or a repository's; "" where none is."""
    marked = (
        here for here in upwards(folder) if any(os.path.exists(os.path.join(here, mark)) for mark in PROJECT_MARKS)
    )
    return next(marked, "")


NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
"""The flag that refuses a symbolic link; 0 on systems without it."""
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""Opening a pipe does not wait for a writer."""
_CHUNK = 65536


class FileTooLarge(OSError):
    """Raised for a file with more bytes than the caller accepts."""

    def __init__(self, size: int) -> None:
        super().__init__(errno.EFBIG, "it is too large")
        self.size = size


def read_regular(path: str, limit: int, flags: int = 0, folder: int | None = None) -> bytes:
    """The content of a regular file.

    Args:
        path: the file; a link is followed unless `flags` holds `NO_FOLLOW`.
        limit: the most bytes that the caller accepts.
        flags: further flags of `os.open`.
        folder: the handle of the folder that `path` is relative to.

    Raises `FileTooLarge` above `limit`, and `OSError` for a file that is missing, unreadable or not regular.
    """
    handle, size = _open(path, flags, folder)
    try:
        if size > limit:
            raise FileTooLarge(size)
        content = os.read(handle, size + 1)
        while len(content) != size and (more := os.read(handle, _CHUNK)):  # it changes while it is read
            content += more
            if len(content) > limit:
                raise FileTooLarge(len(content))
        return content
    finally:
        os.close(handle)


def read_head(path: str, size: int, flags: int = 0, folder: int | None = None) -> bytes:
    """At most the first `size` bytes of a regular file. Raises `OSError`."""
    handle, _ = _open(path, flags, folder)
    try:
        return os.read(handle, size)
    finally:
        os.close(handle)


def _open(path: str, flags: int, folder: int | None) -> tuple[int, int]:
    """A regular file, opened, with its size. Raises `OSError`."""
    if "\0" in path:
        raise OSError(errno.EINVAL, "its path holds a NUL character")
    handle = os.open(path, _FLAGS | flags, dir_fd=folder)
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file")
    return handle, facts.st_size
