"""The contents of folders. One walk serves all searches in the same folders."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from modular_converter.findings import Finding, Location
from modular_converter.rules import missing_file


_NEVER_A_FOLDER = frozenset({errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR})
"""Errors that mean a dangling link. Behind a link with any other error there is a file or a folder."""


class Listing(NamedTuple):
    """The names in a folder, sorted."""

    folders: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    """Links to folders."""
    files: tuple[str, ...] = ()
    """All other entries, dangling links included."""


Unignored = Callable[[str, Sequence[str]], "Collection[str] | None"]
"""Gives the paths below some folders in a folder that git does not ignore: files, links, and repositories within; None
if git cannot tell.
"""


class Listings:
    """The names in folders at the time when each is first asked for."""

    def __init__(self, unignored: Unignored | None = None) -> None:
        """`unignored` tells which files in hidden and output folders are searched; without it, these folders are
        skipped.
        """
        self.unignored = unignored
        self.searched: dict[str, Sequence[str]] = {}
        """Folder -> the folders below it that may hold modular files; `files.arguments.folders_below` fills it."""
        self._known: dict[str, Listing] = {}
        self._unreadable: dict[str, str] = {}

    def of(self, folder: str) -> Listing:
        """The names in a folder. A folder that does not exist is empty; one that cannot be listed is in `findings`."""
        known = self._known.get(folder)
        if known is None:
            known = self._known[folder] = self._list(folder)
        return known

    def has(self, folder: str, name: str) -> bool:
        """Whether a folder has a file, link or folder of a name."""
        listing = self.of(folder)
        if folder in self._unreadable:  # its files can be opened all the same
            return os.path.lexists(os.path.join(folder, name))
        return any(name in names for names in listing)

    @property
    def findings(self) -> list[Finding]:
        """A finding for each folder so far that exists and cannot be listed, sorted."""
        return [missing_file.folder(Location(path), reason) for path, reason in sorted(self._unreadable.items())]

    def _list(self, folder: str) -> Listing:
        folders, links, files = [], [], []
        try:
            with os.scandir(folder) as found:
                for entry in found:
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.name)
                    elif entry.is_symlink() and self._leads_to_folder(entry):
                        links.append(entry.name)
                    else:
                        files.append(entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return Listing()
        except OSError as error:
            self._unreadable[folder] = error.strerror or type(error).__name__
        return Listing(tuple(sorted(folders)), tuple(sorted(links)), tuple(sorted(files)))

    def _leads_to_folder(self, entry: os.DirEntry[str]) -> bool:
        try:
            return entry.is_dir()
        except OSError as error:
            if error.errno not in _NEVER_A_FOLDER:
                self._unreadable[entry.path] = error.strerror or type(error).__name__
            return False
