"""The files of a commit, and sets of changed paths. git itself is not called here."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator

from modular_converter.files.read import is_link
from modular_converter.settings.parent_folders import is_below
from modular_converter.settings.regular_file import NO_FOLLOW, read_regular


MOST_BYTES = 1 << 28
"""A larger file counts as changed, and is not read."""
_SUBMODULE = b"160000"
_LINK = b"120000"


class Snapshot:
    """The files of a commit, compared with those on disk by their content.

    The index, attributes, filters, ignore rules and times are not used: each of them can hide a change.
    """

    def __init__(self, top: str, listed: bytes) -> None:
        """`listed` is the output of `git ls-tree -r -z`, with names relative to the folder `top`."""
        self._top = os.path.join(top, "")
        self._recorded: dict[str, tuple[bytes, str]] = {}
        self._names: dict[str, list[str]] = {}
        self._known: dict[str, bool] = {}
        for entry in listed.split(b"\0"):
            facts, _, name = entry.partition(b"\t")
            if name and not facts.startswith(_SUBMODULE):
                mode, _, blob = facts.split()
                path = self._top + os.fsdecode(name).replace("/", os.sep)
                self._recorded[path] = mode, blob.decode("ascii")
                folder, _, last = path.rpartition(os.sep)
                self._names.setdefault(folder, []).append(last)

    def has_files_in(self, folder: str) -> bool:
        """Whether files of the commit stand directly in a folder, given by its real path."""
        return folder in self._names

    def changes_in(self, folder: str, wanted: Callable[[str], bool]) -> Iterator[str]:
        """The files of wanted names directly in a folder, given by its real path, that were changed, added or removed."""
        names = set(self._names.get(folder, ()))
        with contextlib.suppress(OSError):  # it is gone, or the search for models reports it
            names.update(os.listdir(folder))
        places = (os.path.join(folder, name) for name in sorted(names) if wanted(name))
        yield from (place for place in places if self.differs(place) or self._leads_to_change(place))

    def changes_below(self, folder: str, wanted: Callable[[str], bool]) -> Iterator[str]:
        """The same in a folder and in all those below it."""
        folders = {one for one in (folder, *self._names) if is_below(one, folder)}
        folders.update(one for one, _, _ in os.walk(folder) if os.path.basename(one) != "__pycache__")
        for one in sorted(folders):
            yield from self.changes_in(one, wanted)

    def differs(self, place: str) -> bool:
        """Whether a file, or a link itself, has changed. `place` is a path whose folder is a real path."""
        if place not in self._known:
            recorded = self._recorded.get(place)
            self._known[place] = os.path.lexists(place) if recorded is None else not _holds(place, *recorded)
        return self._known[place]

    def __contains__(self, path: str) -> bool:
        """Whether a path in the work tree has changed: its own file or link, or the file that a link leads to."""
        place = through_folder_links(path)
        return place.startswith(self._top) and (self.differs(place) or self._leads_to_change(place))

    def _leads_to_change(self, place: str) -> bool:
        """Whether a link leads to a file that differs or that is unknown to git."""
        if not is_link(place):
            return False
        target = os.path.realpath(place)
        return not target.startswith(self._top) or self.differs(target)


class Touched:
    """Changed paths, each with everything below it. A link counts as itself and as its target."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._folders: dict[str, str] = {}
        self._below: dict[str, bool] = {}
        self.paths = frozenset(place for path in paths for place in self._places(path))

    def __contains__(self, path: str) -> bool:
        return any(place in self.paths or self._is_below(os.path.dirname(place)) for place in self._places(path))

    def _places(self, path: str) -> tuple[str, str]:
        folder, name = os.path.split(path)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        place = os.path.join(self._folders[folder], name)
        return place, os.path.realpath(place)

    def _is_below(self, folder: str) -> bool:
        """Whether a folder is, or lies below, one of the paths."""
        if folder not in self._below:
            above = os.path.dirname(folder)
            self._below[folder] = folder in self.paths or (above != folder and self._is_below(above))
        return self._below[folder]


def through_folder_links(path: str) -> str:
    """The path of a file with the links of its folders followed, but not the file's own link."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def blob_name(content: bytes, digits: int) -> str:
    """The name that git gives a content, in a repository whose names have so many hexadecimal digits: 40 or 64."""
    whole = b"blob %d\0%s" % (len(content), content)
    return (
        hashlib.sha256(whole).hexdigest() if digits == 64 else hashlib.sha1(whole, usedforsecurity=False).hexdigest()
    )


def _holds(place: str, mode: bytes, blob: str) -> bool:
    """Whether a file or link on disk is the recorded one."""
    try:
        if mode == _LINK:
            content = os.fsencode(os.readlink(place))
        else:
            content = read_regular(place, MOST_BYTES, NO_FOLLOW)
    except OSError:
        return False
    return blob_name(content, len(blob)) == blob
