"""What folders hold. One walk serves all who look for files in the same folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import NamedTuple


class Listing(NamedTuple):
    """The names in a folder, sorted."""

    folders: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    """Links to folders, which are not followed when walking."""
    files: tuple[str, ...] = ()


class Listings:
    """The names in folders at the time when each is first asked for. One that cannot be read holds nothing."""

    def __init__(self) -> None:
        self._known: dict[str, Listing] = {}

    def of(self, folder: str) -> Listing:
        """What a folder holds."""
        known = self._known.get(folder)
        if known is None:
            known = self._known[folder] = _list(folder)
        return known

    def folders(self, folder: str, skipped: frozenset[str]) -> Iterator[str]:
        """A folder and those in it, but not hidden ones or those to be skipped."""
        waiting = [folder]
        while waiting:
            here = waiting.pop()
            listing = self.of(here)
            yield here
            below = (name for name in listing.folders if name not in skipped and not name.startswith("."))
            waiting += (os.path.join(here, name) for name in below)

    def below(self, folder: str, skipped: frozenset[str], wanted: Callable[[str], bool]) -> Iterator[str]:
        """The files of wanted names in a folder and those in it, but not in hidden ones or those to be skipped."""
        for here in self.folders(folder, skipped):
            yield from (os.path.join(here, name) for name in self.of(here).files if wanted(name))


def _list(folder: str) -> Listing:
    folders, links, files = [], [], []
    try:
        with os.scandir(folder) as found:
            for entry in found:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.name)
                elif entry.is_symlink() and entry.is_dir():
                    links.append(entry.name)
                else:
                    files.append(entry.name)
    except OSError:
        return Listing()
    return Listing(tuple(sorted(folders)), tuple(sorted(links)), tuple(sorted(files)))
