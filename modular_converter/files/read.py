"""Read the files of the tree that is checked: regular ones, up to a size, and none through a link out of the root, by
which a stranger could make the tool print or copy a private file.
"""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Callable, Iterable, Iterator

from modular_converter.findings import ConversionError, Location
from modular_converter.rules import input_files
from modular_converter.settings.layout import models_folder_of
from modular_converter.settings.parent_folders import INSTALLED
from modular_converter.settings.regular_file import NO_FOLLOW, read_head, read_regular
from modular_converter.settings.values import Settings


def is_installed(path: str) -> bool:
    """Whether a path lies in a folder of installed packages. They are read only, and trusted."""
    return not INSTALLED.isdisjoint(path.split(os.sep))


def root_of(path: str, settings: Settings) -> str:
    """The folder that no link in the path of a model's file may lead out of.

    That is the configured root, when the file lies below it, and else its folder of models.
    """
    if settings.root and path.startswith(os.path.join(settings.root, "")):
        return settings.root
    return models_folder_of(path, settings)


def refuse_link_out(path: str, settings: Settings) -> None:
    """Raise `ConversionError` (MC114) for a model's file that is, or lies behind, a link out of the root.

    A file of the same name may lie outside: build tools and package caches make trees of such links. Only the file and
    its folder are looked at, and only a link is followed.
    """
    if not (is_link(path) or is_link(os.path.dirname(path))) or is_installed(path):
        return
    target, root = os.path.realpath(path), os.path.realpath(root_of(path, settings))
    if os.path.basename(target) != os.path.basename(path) and not target.startswith(os.path.join(root, "")):
        raise ConversionError(input_files.outside_root(Location(path), target, root))


def is_link(path: str) -> bool:
    """Whether a path itself is a symbolic link."""
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


_IS_LINK = (errno.ELOOP, errno.EMLINK)
"""The error when a link is opened that may not be followed."""
_BY_HANDLE = bool(NO_FOLLOW) and os.open in os.supports_dir_fd
"""Whether files can be opened relative to an open folder."""
_Read = Callable[..., bytes]
"""Reads a file, given its path, `flags` of `os.open`, and the handle of the `folder` that the path is relative to."""


def read_inside(path: str, settings: Settings) -> bytes:
    """The content of a source or generated file.

    Raises `ConversionError` (MC114) for a link that leads out of the root, `FileTooLarge` above the configured size,
    and `OSError` for a file that is missing, unreadable or not regular.
    """
    return _inside(path, settings, _whole(settings))


def contents(folder: str, names: Iterable[str], settings: Settings) -> Iterator[tuple[str, bytes | Exception]]:
    """Each file of a folder with its content, or the error that `read_inside` raises for it."""
    return _each(folder, names, settings, _whole(settings))


def heads(folder: str, names: Iterable[str], size: int, settings: Settings) -> Iterator[tuple[str, bytes | Exception]]:
    """Each file of a folder with at most its first `size` bytes, or the error that `read_inside` raises for it."""
    return _each(folder, names, settings, functools.partial(read_head, size=size))


def _whole(settings: Settings) -> _Read:
    return functools.partial(read_regular, limit=settings.max_file_bytes)


def _each(
    folder: str, names: Iterable[str], settings: Settings, read: _Read
) -> Iterator[tuple[str, bytes | Exception]]:
    """Read files of one folder. The folder is opened once, unless it is a link; if it is replaced meanwhile, the new
    one is not read.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | NO_FOLLOW) if _BY_HANDLE else None
    except OSError:
        handle = None
    try:
        for name in names:
            if handle is not None:
                try:
                    found: bytes | Exception = read(name, flags=NO_FOLLOW, folder=handle)
                except OSError as error:
                    found = error
                if not isinstance(found, OSError) or found.errno not in _IS_LINK:
                    yield name, found
                    continue
            try:  # for a link, or a folder that is a link, the path decides
                yield name, _inside(f"{folder}{os.sep}{name}", settings, read)
            except (OSError, ConversionError) as error:
                yield name, error
    finally:
        if handle is not None:
            os.close(handle)


def _inside(path: str, settings: Settings, read: _Read) -> bytes:
    """Read a file that is no link at once; one behind a link only when that link stays inside the root.

    The system itself says whether the file is a link, which saves a call for each of a thousand files.
    """
    if NO_FOLLOW and not is_link(path.rpartition(os.sep)[0]):
        try:
            return read(path, flags=NO_FOLLOW)
        except OSError as error:
            if error.errno not in _IS_LINK:
                raise
    refuse_link_out(path, settings)
    return read(path)


def in_form_of(path: str, text: str) -> str:
    """A text with the byte order mark and the line ends that the file at `path` has. Raises `OSError`."""
    with open(path, encoding="utf-8", newline="") as file:
        old = file.read()
    text = text.replace("\n", "\r\n") if "\r\n" in old else text
    return "\ufeff" + text if old.startswith("\ufeff") else text


def text_of_content(path: str, content: bytes) -> str:
    """The text of a file with this content: `\\n` line ends, no byte order mark. Raises `ConversionError` if not UTF-8."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConversionError(
            input_files.not_utf8(_place(path, content, error.start), content[error.start], error.start)
        ) from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def given_text(path: str, source: str | bytes, settings: Settings) -> str:
    """A text that is read in place of the file at `path`, as the file would be read.

    Raises `ConversionError` for one that is too large, not UTF-8, or has no encoding (a lone surrogate).
    """
    try:
        content = source if isinstance(source, bytes) else source.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ConversionError(input_files.in_the_text(path, str(source), error.start)) from None
    if len(content) > settings.max_file_bytes:
        raise ConversionError(input_files.too_large(Location(path), len(content), settings.max_file_bytes))
    return text_of_content(path, content)


def _place(path: str, content: bytes, offset: int) -> Location:
    """The line and column of a byte."""
    before = content[:offset].decode("utf-8", "replace")
    return Location(path, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
