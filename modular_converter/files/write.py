"""Write files atomically: a file is the old one or the new one, and no temporary file is left. Where generated files go, and what
keeps them from being written: never into an installed package, never out of the root, and not in a release that the profile
has not been checked with (MC394). And the notice at the top of a generated file.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from modular_converter.files.read import in_form_of, is_installed, read_inside, root_of
from modular_converter.findings import ConversionError, Finding, Location
from modular_converter.rules import input_files, settings_tables
from modular_converter.settings.disk import NO_FOLLOW, FileTooLarge, is_below, project_above, read_regular
from modular_converter.settings.load import is_unchecked
from modular_converter.settings.values import BANNER_NOTICE, NEIGHBOUR, Settings, is_modular, models_folder_of


LEFTOVER = re.compile(r"^\..+\.(\d+)\.modular-tmp$")
"""A temporary file of ours; the last number is the process that made it."""
STALE_SECONDS = 3600.0
"""A temporary file lives for milliseconds. One this old is a leftover, whatever process has its number now."""
_NUMBERS = itertools.count()
"""A number for each temporary file of this process, since two of its threads may write the same file."""
STDOUT = 1
"""The descriptor of the standard output."""


def write_atomically(path: str | os.PathLike[str], text: str, root: str | os.PathLike[str]) -> bool:
    """Make `path` hold `text`, in UTF-8 and with the line breaks as they are. Returns whether that changed anything.

    The text goes to a temporary file beside the target, which then replaces it, so that a kill at any moment leaves
    the old file or the new one. The mode of an existing file is kept, and a symbolic link stays a link.
    A folder that becomes a link during the call is not followed, so nothing is ever written outside of `root`.
    Raises `ConversionError` (MC114) for a path that leads out of `root`, and (MC113) for one that cannot be written.
    """
    target = resolve_inside(path, root)
    content = text.encode("utf-8")
    with told_of_path(path):
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with opened_folder(os.path.dirname(target)) as folder:
            name = folder.at(os.path.basename(target))
            _refuse_special(name, folder)
            if _holds(name, content, folder):
                return False
            _refuse_read_only(name, folder)
            _replace(name, content, folder)
    return True


@contextlib.contextmanager
def told_of_path(path: str | os.PathLike[str]) -> Iterator[None]:
    """Make an `OSError` in the block a `ConversionError` (MC113) about what is written at `path`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or type(error).__name__
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise ConversionError(
            input_files.read_only_target(Location(os.fspath(path)), reason, is_full=is_full)
        ) from None


def write_result(path: str, text: str) -> None:
    """Write what a command found to the file, device or pipe that the user named; `-`, or a name such as `/dev/stdout` of what
    the standard output goes to, is the standard output. Raises `ConversionError` (MC113).
    """
    if path == "-" or _is_stdout(path):
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode("utf-8"))
        sys.stdout.buffer.flush()
    elif os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):  # a device or a pipe
        with open(path, "wb") as file:
            file.write(text.encode("utf-8"))
    else:
        write_atomically(path, text, os.path.dirname(os.path.abspath(path)))


def _is_stdout(path: str) -> bool:
    with contextlib.suppress(OSError):
        return os.path.samestat(os.stat(path), os.fstat(STDOUT))
    return False


def resolve_inside(path: str | os.PathLike[str], root: str | os.PathLike[str]) -> str:
    """The real path behind `path`. Raises `ConversionError` (MC114) when that is not within `root`."""
    target, real_root = os.path.realpath(path), os.path.realpath(root)
    if not is_below(target, real_root):
        raise ConversionError(input_files.outside_root(Location(os.fspath(path)), target, os.fspath(root)))
    return target


def sweep(
    folder: str | os.PathLike[str], pattern: re.Pattern[str] = LEFTOVER, remove: Callable[[str], object] = os.unlink
) -> None:
    """Remove the temporary files that killed processes have left in `folder`, or what else `pattern` matches with a process."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if (match := pattern.match(name)) and is_abandoned(int(match[1]), path):
                with contextlib.suppress(OSError):
                    remove(path)


def is_abandoned(process: int, path: str) -> bool:
    """Whether the process that made the temporary file or folder `path` has ended, so that `path` may be removed."""
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


class Folder(NamedTuple):
    """An open folder. Operations through it stay in this folder, even if its path leads elsewhere by now."""

    path: str
    handle: int | None
    """None on systems that open files by path alone."""

    def at(self, name: str) -> str:
        """The name to use together with the handle."""
        return os.path.join(self.path, name) if self.handle is None else name

    def stat(self, name: str) -> os.stat_result:
        """The facts about a file in it. Links are not followed: names are those of real paths."""
        return os.stat(name, dir_fd=self.handle, follow_symlinks=False)


@contextlib.contextmanager
def opened_folder(path: str) -> Iterator[Folder]:
    """Open a folder by its real path. Raises `OSError` where a part of the path has become a link meanwhile."""
    if os.open not in os.supports_dir_fd or os.rename not in os.supports_dir_fd:
        yield Folder(path, None)
        return
    flags = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
    handle = os.open(os.sep, flags)
    try:
        for part in path.split(os.sep)[1:]:
            if part:
                below = os.open(part, flags, dir_fd=handle)
                os.close(handle)
                handle = below
        yield Folder(path, handle)
    finally:
        os.close(handle)


def _refuse_special(name: str, folder: Folder) -> None:
    """Raise for a device, a pipe or a folder: a file that takes its place would end it."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(folder.stat(name).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")


def _holds(name: str, content: bytes, folder: Folder) -> bool:
    """Whether a file has this content. A larger file is not read."""
    try:
        return read_regular(name, len(content), NO_FOLLOW, folder.handle) == content
    except (FileNotFoundError, FileTooLarge):
        return False


def _refuse_read_only(name: str, folder: Folder) -> None:
    """Raise for a target or folder without write permission, also for root, who could write it anyway."""
    here = folder.at(".")
    if not os.access(here, os.W_OK, dir_fd=folder.handle) or (
        os.name != "nt" and not folder.stat(here).st_mode & 0o222
    ):
        raise PermissionError(0, "its folder is read-only")
    with contextlib.suppress(FileNotFoundError):
        if not folder.stat(name).st_mode & 0o222 or not os.access(name, os.W_OK, dir_fd=folder.handle):
            raise PermissionError(0, "it is read-only")


def replace_file(target: str, content: bytes) -> None:
    """Write a temporary file beside `target`, with the same mode, and rename it to `target` in one step. Threads and
    processes may do so at the same time; the last one wins. Raises `OSError`.
    """
    path, name = os.path.split(target)
    with opened_folder(os.path.realpath(path)) as folder:
        _replace(folder.at(name), content, folder)


def _replace(name: str, content: bytes, folder: Folder) -> None:
    temporary, handle = _create(name, folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            with contextlib.suppress(FileNotFoundError):  # a new file is as the umask has it
                mode = stat.S_IMODE(folder.stat(name).st_mode)
                os.chmod(temporary if folder.handle is None else handle, mode)
        os.replace(temporary, name, src_dir_fd=folder.handle, dst_dir_fd=folder.handle)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder.handle)
        raise


def _create(name: str, folder: Folder) -> tuple[str, int]:
    """Open a new file in a folder, under a name that no other process uses. Links are not followed."""
    short = os.fsdecode(os.fsencode(os.path.basename(name))[:200])
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    while True:
        path = folder.at(f".{short}.{next(_NUMBERS)}.{os.getpid()}.modular-tmp")
        with contextlib.suppress(FileExistsError):  # a file of an earlier process with the same number
            return path, os.open(path, flags, 0o666, dir_fd=folder.handle)


def path_of_generated(path: str, settings: Settings) -> str:
    """Where a generated file goes: beside its modular file, or below the configured folder."""
    if not settings.output_dir:
        return path
    return os.path.join(settings.output_dir, os.path.relpath(path, models_folder_of(path, settings)))


def same_targets(paths: Sequence[str], settings: Settings) -> dict[str, Finding]:
    """An error for each modular file whose generated files would be written over those of another, by its path."""
    places: dict[str, list[str]] = {}
    for path in paths if settings.output_dir else ():
        places.setdefault(path_of_generated(path, settings), []).append(path)
    return {
        path: input_files.same_place(Location(path), next(one for one in found if one != path), settings.output_dir)
        for found in places.values()
        if len(found) > 1
        for path in found
    }


def current_text(target: str, settings: Settings) -> str | None:
    """The text of a generated file on disk, line breaks unchanged; None when it is missing or unreadable.

    Raises `ConversionError` for a link out of the root, and for a file over the size limit.
    """
    try:
        return read_inside(target, settings).decode("utf-8")
    except FileTooLarge as error:
        raise ConversionError(input_files.too_large(Location(target), error.size, settings.max_file_bytes)) from None
    except (OSError, UnicodeDecodeError):
        return None


def put_in_place(target: str, text: str, modular: str, settings: Settings) -> bool:
    """Write a generated file; return whether that changed anything.

    Raises `ConversionError` when it may not or cannot be written, when it would change in an unchecked release, and when
    its modular file is gone: a model that was removed during the run must not come back.
    """
    if is_modular(target.casefold(), settings):
        raise ConversionError(input_files.read_only_target(Location(target), "it has the name of a modular file"))
    if not settings.output_dir and is_installed(target):
        raise ConversionError(input_files.installed(Location(target)))
    if not os.path.isfile(modular):
        raise ConversionError(input_files.missing_file(Location(modular), reason="it was removed during the run"))
    if is_unchecked(settings) and current_text(target, settings) != text:
        refuse_change(target, settings)
    resolve_inside(target, settings.output_dir or os.path.dirname(target))
    sweep(os.path.dirname(target))
    return write_atomically(target, text, settings.output_dir or root_of(target, settings))


def write_sources(texts: Mapping[str, str], settings: Settings) -> None:
    """Write the new texts of files that people have written, with their line ends. Raises `ConversionError` for one that cannot
    be written, and before any is for one that may not.
    """
    for path in texts:
        if is_installed(os.path.realpath(path)):
            raise ConversionError(input_files.installed(Location(path)))
    for path, text in texts.items():
        write_atomically(path, in_form_of(path, text), root_of(path, settings))


def about_release(settings: Settings, *, keeps_files: bool = False) -> Finding | None:
    """The finding about an unchecked release of the package; None where all is known.

    Args:
        keeps_files: whether the release has kept a file from being changed.
    """
    release = settings.package_release
    if release is None or not is_unchecked(settings):
        return None
    package = os.path.basename(os.path.dirname(release.place.path))
    return settings_tables.unchecked_release(
        release.place, package, release.version, settings.checked_release, keeps_files=keeps_files
    )


def is_about_release(findings: Iterable[Finding]) -> bool:
    """Whether all of some findings say that an unchecked release keeps files from being changed."""
    return all(one.rule is settings_tables.UNCHECKED_RELEASE for one in findings)


def refuse_change(target: str, settings: Settings) -> None:
    """Raise `ConversionError` (MC394) for a file of an unchecked release that exists. It is about to be changed."""
    release = settings.package_release
    if release is None or not is_unchecked(settings) or not os.path.lexists(target):
        return
    package = os.path.dirname(release.place.path)
    if is_below(target, package) or is_below(os.path.realpath(target), os.path.realpath(package)):
        finding = about_release(settings, keeps_files=True)
        assert finding is not None
        raise ConversionError(finding)


_SIREN = "\N{POLICE CARS REVOLVING LIGHT}"
_LINE = "#                " + _SIREN * 48
_NOTICE = BANNER_NOTICE.partition(" {")[0]
_TEMPLATE = """\
{line}
#           {notice} {path}.
#               Do NOT edit this file manually as any edits will be overwritten by the generation of
#             the file from the modular. If any change should be done, please apply the change to the
#                          {name} file directly. One of our CI enforces this.
{line}
"""


def banner(path: str, settings: Settings) -> str:
    """The banner of the files generated from the modular file at `path`."""
    template = settings.banner or _TEMPLATE.format(line=_LINE, notice=_NOTICE, path="{path}", name="{name}")
    values = {"{path}": source_path(path, settings), "{name}": _on_one_line(os.path.basename(path))}
    return re.sub(r"\{path\}|\{name\}", lambda match: values[match[0]], template)


def header(own: str, neighbour: str, settings: Settings) -> str:
    """The comments below the banner.

    Args:
        own: the header of the modular file.
        neighbour: the header of the first neighbour, with its banner if any; "" without neighbours.
        settings: `license_header` names the text that is added to `own`.
    """
    if settings.license_header == NEIGHBOUR:
        added = without_banner(neighbour, settings).strip("\n")
        if not added or added in own:
            return own
        return f"{own.rstrip()}\n\n{added}\n\n" if own.strip() else f"{added}\n\n"
    return own if own.strip() or not settings.license_header else f"{settings.license_header.strip()}\n\n"


def without_banner(text: str, settings: Settings) -> str:
    """The header of a file without its banner."""
    if not is_generated(text):
        return text
    banner_lines = (_TEMPLATE if _SIREN in text else settings.banner).count("\n")
    return "".join(text.splitlines(keepends=True)[banner_lines:])


def source_path(path: str, settings: Settings) -> str:
    """The path of a modular file in its source repository, with forward slashes.

    The path begins with `banner_root` for models of the package of the settings, and else at the folder of the
    nearest `pyproject.toml` or `.git`.
    """
    parts = path.rsplit(os.sep, 4)  # one call, since a check needs hundreds of answers
    if settings.banner_root and parts[-4:-3] == [settings.package]:
        return _on_one_line("/".join((settings.banner_root, *parts[-2:])))
    folder = os.path.dirname(path)
    root = project_above(folder) or os.path.dirname(os.path.dirname(folder))
    return _on_one_line(os.path.relpath(path, root).replace(os.sep, "/"))


def _on_one_line(path: str) -> str:
    """Escape characters that cannot be shown: text behind a line break would be code in the generated file."""
    shown = (one if one.isprintable() or "\udc80" <= one <= "\udcff" else ascii(one)[1:-1] for one in path)
    return path if path.isprintable() else "".join(shown)  # nearly always as it is; a check needs hundreds of answers


def is_generated(text: str) -> str:
    """The path in the banner of a generated file; "" for any other text."""
    start = text.find(_NOTICE, 0, 2000)
    if start < 0:
        return ""
    return text[start + len(_NOTICE) :].partition("\n")[0].strip().rstrip(".")
