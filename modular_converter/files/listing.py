"""The contents of folders, and the folders that may hold models. One walk serves all searches in the same folders."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import NamedTuple

from modular_converter.findings import Finding, Location
from modular_converter.rules import input_files
from modular_converter.settings.disk import is_below, project_above


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
        return [input_files.folder(Location(path), reason) for path, reason in sorted(self._unreadable.items())]

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


NEVER = ".git"
"""A folder of this name holds no sources, and cannot be committed."""
OUTPUTS = frozenset({"build", "dist", "node_modules"})
"""Folders with these names mostly hold copies of other files if they stand at the top of a project."""
PROJECT_FILES = frozenset({"pyproject.toml", "setup.py", "setup.cfg", "package.json", ".git"})
"""The files and folders by which the top folder of a project is recognised."""
ENVIRONMENT = "pyvenv.cfg"
"""The file at the top of a virtual environment."""


class ModelFolders:
    """The search for folders that may hold models, through the listings of a run.

    Links are followed within the project. Of hidden folders, and of `build`, `dist` and `node_modules` at the top of a
    project, only those are yielded that hold a wanted file which git does not ignore. These folders, and a folder
    outside of the project behind a link, are also yielded if they directly hold a wanted file.
    """

    def __init__(self, listings: Listings, wanted: Callable[[str], bool]) -> None:
        """A search for files whose names are `wanted`."""
        self._listings, self._wanted = listings, wanted
        self._seen: set[str] = set()
        self._links: list[str] = []
        self._aside: list[tuple[str, list[str]]] = []

    def below(self, top: str) -> Iterator[str]:
        """The folder `top` and the folders below it, each once: by a plain path if there is one, else behind a link."""
        real_top = os.path.realpath(top)
        project = os.path.realpath(project_above(real_top) or os.path.dirname(real_top))
        yield from self._walk(top, real_top)
        while self._links or self._aside:
            if self._links:
                yield from self._behind(self._links.pop(), real_top, project)
            else:
                yield from self._in_aside(*self._aside.pop())

    def files_below(self, top: str) -> Iterator[str]:
        """The wanted files in the folders of `below`."""
        for here in self.below(top):
            yield from (os.path.join(here, name) for name in self._listings.of(here).files if self._wanted(name))

    def _walk(self, top: str, real_top: str) -> Iterator[str]:
        """The plain folders that were not seen yet; links, hidden and output folders wait for later."""
        waiting = [(top, real_top)]
        while waiting:
            here, real = waiting.pop()
            if real in self._seen:
                continue
            self._seen.add(real)
            listing = self._listings.of(here)
            yield here
            self._links += (f"{here}{os.sep}{name}" for name in listing.links)
            is_top = not PROJECT_FILES.isdisjoint((*listing.files, *listing.folders))
            aside = {name for name in listing.folders if name[0] == "." or (is_top and name in OUTPUTS)}
            plain = (name for name in listing.folders if name not in aside)
            waiting += ((f"{here}{os.sep}{name}", f"{real}{os.sep}{name}") for name in plain)
            if aside := aside - {NEVER}:
                self._aside.append((here, sorted(aside)))

    def _behind(self, link: str, real_top: str, project: str) -> Iterator[str]:
        """The folders behind a link: all within the project, else only the folder itself."""
        target = os.path.realpath(link)
        if is_below(target, project) and not is_below(real_top, target):
            yield from self._walk(link, target)
        else:
            yield from self._alone(link)

    def _alone(self, folder: str) -> Iterator[str]:
        """A folder, without the folders below it, if it directly holds a wanted file."""
        real = os.path.realpath(folder)
        if real not in self._seen and any(map(self._wanted, self._listings.of(folder).files)):
            yield folder
        self._seen.add(real)

    def _in_aside(self, here: str, names: Sequence[str]) -> Iterator[str]:
        """The folders with wanted files at or below the hidden and output folders in a folder."""
        unignored = self._listings.unignored
        found = unignored(here, names) if unignored else ()
        for folder in (f"{here}{os.sep}{name}" for name in names):
            if found is None and ENVIRONMENT not in self._listings.of(folder).files:
                yield from self._walk(folder, os.path.realpath(folder))
            else:
                yield from self._alone(folder)
        for path in sorted(found or ()):
            if os.path.islink(path) and os.path.isdir(path):
                self._links.append(path)
            elif os.path.isdir(path):  # a repository of its own
                yield from self._walk(path, os.path.realpath(path))
            elif self._wanted(os.path.basename(path)):
                yield from self._alone(os.path.dirname(path))
