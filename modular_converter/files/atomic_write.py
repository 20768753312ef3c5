"""Put generated files in place: each is the old one or the new one, never a part, and nothing else is left behind."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import stat
import time

from modular_converter.diagnostics import ConversionError, Location
from modular_converter.rules import outside_root, read_only_target


LEFTOVER = re.compile(r"^\..+\.(\d+)\.modular-tmp$")
"""A temporary file of ours; the last number is the process that made it."""
STALE_SECONDS = 3600.0
"""A temporary file lives for milliseconds. One this old is a leftover, whatever process has its number now."""
_NUMBERS = itertools.count()
"""One for each temporary file of this process: its threads may write the same file."""


def write_atomically(path: str | os.PathLike[str], text: str, root: str | os.PathLike[str]) -> bool:
    """Make `path` hold `text`, in UTF-8 and with the line breaks as they are. Returns whether that changed anything.

    The text goes to a temporary file beside the target, which then replaces it, so that a kill at any moment leaves
    the old file or the new one. The mode of an existing file is kept, and a symbolic link goes on being one.
    Raises `ConversionError` (MC114) for a path that leads out of `root`, and (MC113) for one that cannot be written.
    """
    target = resolve_inside(path, root)
    content = text.encode("utf-8")
    try:
        _refuse_special(target)
        if _holds(target, content):
            return False
        os.makedirs(os.path.dirname(target), exist_ok=True)
        _refuse_read_only(target)
        replace_file(target, content)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConversionError(read_only_target.diagnose(Location(os.fspath(path)), reason)) from None
    return True


def resolve_inside(path: str | os.PathLike[str], root: str | os.PathLike[str]) -> str:
    """The real path behind `path`. Raises `ConversionError` (MC114) when that is not within `root`."""
    target, real_root = os.path.realpath(path), os.path.realpath(root)
    if not _is_inside(target, real_root):
        raise ConversionError(outside_root.diagnose(Location(os.fspath(path)), target, os.fspath(root)))
    return target


def sweep(folder: str | os.PathLike[str]) -> list[str]:
    """Remove the temporary files that killed processes have left in `folder`. Returns the names removed, sorted."""
    removed = []
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    for name in names:
        match = LEFTOVER.match(name)
        path = os.path.join(folder, name)
        if match and is_abandoned(int(match[1]), path) and _remove(path):
            removed.append(name)
    return removed


def is_abandoned(process: int, path: str) -> bool:
    """Whether the process that made the temporary file or folder `path` is gone, so that it may be removed."""
    try:
        if time.time() - os.lstat(path).st_mtime > STALE_SECONDS:
            return True
    except OSError:
        return False
    if os.name == "nt":
        return False  # there, the signal 0 below would end the process
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:
        return False
    return False


def _is_inside(target: str, root: str) -> bool:
    try:
        return os.path.commonpath((target, root)) == os.path.normpath(root)
    except ValueError:  # another drive
        return False


def _refuse_special(target: str) -> None:
    """Raise for a device, a pipe or a folder: a file that takes its place would end it."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file")


def _holds(target: str, content: bytes) -> bool:
    """Whether a file has this content. One of another size, however large, is not read."""
    try:
        with open(target, "rb") as file:
            return os.fstat(file.fileno()).st_size == len(content) and file.read() == content
    except FileNotFoundError:
        return False


def _refuse_read_only(target: str) -> None:
    """Raise for a target or folder without write permission, also for a user who could write it all the same."""
    folder = os.path.dirname(target)
    writable = os.access(folder, os.W_OK)
    if not writable or (os.name != "nt" and not os.stat(folder).st_mode & 0o222):
        raise PermissionError(0, "its folder is read-only")
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return
    if not mode & 0o222 or not os.access(target, os.W_OK):
        raise PermissionError(0, "it is read-only")


def replace_file(target: str, content: bytes) -> None:
    """Write a temporary file beside `target`, with its mode, and let it take its place: in one step, or not at all.

    Any number of threads and processes may do so at once; the last one counts. Raises `OSError`.
    """
    temporary, handle = _create(target)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        with contextlib.suppress(FileNotFoundError):  # a new file is as the umask has it
            os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
        os.replace(temporary, target)
    except BaseException:
        _remove(temporary)
        raise


def _create(target: str) -> tuple[str, int]:
    """Open a new file beside `target`, under a name that nobody else has. Links are not followed."""
    folder, name = os.path.split(target)
    short = os.fsdecode(os.fsencode(name)[:200])
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        path = os.path.join(folder, f".{short}.{next(_NUMBERS)}.{os.getpid()}.modular-tmp")
        with contextlib.suppress(FileExistsError):  # of an earlier process with our number
            return path, os.open(path, flags, 0o666)


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True
