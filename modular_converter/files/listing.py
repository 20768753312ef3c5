"""The contents of folders. One walk serves all who look for files in the same folders."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import NamedTuple

from modular_converter.diagnostics import Diagnostic, Location
from modular_converter.rules import missing_file
from modular_converter.settings.parent_folders import project_above


CACHES = "__pycache__"
OUTPUTS = frozenset({"build", "dist", "node_modules"})
"""Folders with these names hold copies of other files if they stand at the top of a project."""
PROJECT_FILES = frozenset({"pyproject.toml", "setup.py", "setup.cfg", "package.json", ".git"})
"""The top folder of a project has one of these files or folders."""
_NEVER_A_FOLDER = frozenset({errno.ELOOP, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOTDIR})
"""Errors of a link that leads nowhere. Any other error of a link hides a file or a folder."""


class Listing(NamedTuple):
    """The names in a folder, sorted."""

    folders: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    """Links to folders."""
    files: tuple[str, ...] = ()
    """All others, links that lead nowhere included."""


class Listings:
    """The names in folders at the time when each is first asked for."""

    def __init__(self) -> None:
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
    def findings(self) -> list[Diagnostic]:
        """One for each folder so far that exists and cannot be listed, sorted."""
        return [missing_file.folder(Location(path), reason) for path, reason in sorted(self._unreadable.items())]

    def folders(self, top: str, wanted: Callable[[str], bool]) -> Iterator[str]:
        """The folder `top` and the folders below it that may hold models.

        Not searched are `__pycache__`, hidden folders, and `build`, `dist` and `node_modules` at the top of a project.
        Links are followed within the project, to each folder once. A hidden folder, or a folder outside of the project,
        is still yielded if it directly holds a file that is `wanted` by its name.
        """
        seen: set[str] = set()
        links: list[str] = []
        real_top = os.path.realpath(top)
        project = ""
        yield from self._walk(top, real_top, wanted, seen, links)
        while links:
            link = links.pop()
            target = os.path.realpath(link)
            project = project or os.path.realpath(project_above(real_top) or os.path.dirname(real_top))
            is_above = os.path.join(real_top, "").startswith(os.path.join(target, ""))
            if is_above or not target.startswith(os.path.join(project, "")):
                if target not in seen and any(map(wanted, self.of(link).files)):
                    yield link
                seen.add(target)
            else:
                yield from self._walk(link, target, wanted, seen, links)

    def below(self, top: str, wanted: Callable[[str], bool]) -> Iterator[str]:
        """The files of wanted names in the folders of `folders`."""
        for here in self.folders(top, wanted):
            yield from (os.path.join(here, name) for name in self.of(here).files if wanted(name))

    def _walk(
        self, top: str, real_top: str, wanted: Callable[[str], bool], seen: set[str], links: list[str]
    ) -> Iterator[str]:
        """The folders to search, but for those `seen` by their real paths; the links in them are added to `links`."""
        waiting = [(top, real_top)]
        while waiting:
            here, real = waiting.pop()
            if real in seen:
                continue
            seen.add(real)
            listing = self.of(here)
            yield here
            links += (f"{here}{os.sep}{name}" for name in listing.links)
            is_top = not PROJECT_FILES.isdisjoint((*listing.files, *listing.folders))
            for name in listing.folders:
                below = f"{here}{os.sep}{name}", f"{real}{os.sep}{name}"
                if not (name.startswith(".") or name == CACHES or (is_top and name in OUTPUTS)):
                    waiting.append(below)
                elif name != CACHES and any(map(wanted, self.of(below[0]).files)):
                    seen.add(below[1])
                    yield below[0]

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
