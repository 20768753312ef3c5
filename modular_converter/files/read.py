"""Read the files of the tree that is checked: regular ones, up to a size, and none through a link out of the root, by
which a stranger could make the tool print or copy a private file. Packages are found on disk, by their `__init__.py` and by
name, without importing them; programs on PATH, but none that the tree under check brings along.
"""

from __future__ import annotations

import errno
import functools
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from importlib.machinery import PathFinder

from modular_converter.findings import ConversionError, Location
from modular_converter.rules import input_files
from modular_converter.settings.disk import (
    INSTALLED,
    NO_FOLLOW,
    PROJECT_MARKS,
    is_below,
    read_head,
    read_regular,
    upwards,
)
from modular_converter.settings.values import Settings, models_folder_of


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


def package_of(folder: str) -> tuple[str, str]:
    """The top folder of the package that `folder` lies in, and the dotted name of `folder` in it.

    A folder belongs to a package as long as it holds an `__init__.py`.
    """
    parts: list[str] = []
    while os.path.isfile(os.path.join(folder, "__init__.py")):
        folder, name = os.path.split(folder)
        parts.append(name)
    return (os.path.join(folder, parts[-1]) if parts else folder), ".".join(reversed(parts))


def find_package(name: str, beside: str, is_file: Callable[[str], bool] = os.path.isfile) -> str | None:
    """The folder of the package that files in the folder `beside` import as `name`. It is located, never imported.

    It is the nearest one of these:

    1. a package of this name that `beside` lies in, also while folders between the two lack their `__init__.py`;
    2. a package of this name at the top of the project that `beside` lies in, or in its folder `src`;
    3. the installed package;
    4. where none is installed: a folder of this name without `__init__.py`, in the places of 1 and 2.

    Inside of a checkout the installed package of the same name holds other code, so it comes last.
    """
    if not re.fullmatch(r"[^\W\d]\w*", name):
        return None
    folders = list(_folders_of(name, beside, is_file))
    packages = (one for one in folders if is_file(os.path.join(one, "__init__.py")))
    if package := next(packages, None):
        return package
    spec = PathFinder.find_spec(name)
    locations = list(spec.submodule_search_locations or []) if spec else []
    has_code = spec is not None and spec.origin is not None
    return next((one for one in ([] if has_code else folders)), None) or (locations[0] if locations else None)


def _folders_of(name: str, beside: str, is_file: Callable[[str], bool]) -> Iterator[str]:
    """The folders of a name that may be a top-level package for a file in `beside`, from the nearest one on."""
    for folder in upwards(beside):
        parent, here = os.path.split(folder)
        if here in INSTALLED:
            return
        is_top = any(os.path.exists(os.path.join(folder, mark)) for mark in PROJECT_MARKS)
        may_be = here == name and (not is_top or is_file(os.path.join(folder, "__init__.py")))
        if may_be and not is_file(os.path.join(parent, "__init__.py")):
            yield folder
        if is_top:
            yield from (
                one for one in (os.path.join(folder, "src", name), os.path.join(folder, name)) if os.path.isdir(one)
            )
            return


SUFFIX = ".exe" if os.name == "nt" else ""


def program_on_path(name: str, forbidden: str) -> str:
    """The first program of a name in a folder of PATH, "" for none.

    Args:
        name: such as `ruff`, without a suffix.
        forbidden: the folder of the project that is read; programs inside of it are not run, unless it is the topmost
            folder. Relative folders of PATH are skipped, too: they depend on the folder in which the command was
            started.
    """
    top = os.path.realpath(forbidden) if forbidden else ""
    top = "" if top == os.path.dirname(top) else top
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        path = os.path.join(folder, name + SUFFIX)
        if not os.path.isabs(folder) or not os.path.isfile(path) or not os.access(path, os.X_OK):
            continue
        real = os.path.join(os.path.realpath(folder), name + SUFFIX), os.path.realpath(path)
        if not top or not any(is_below(one, top) for one in real):
            return path
    return ""
