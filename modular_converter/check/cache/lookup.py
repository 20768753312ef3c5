"""The cache of the check: it knows the conversions of earlier runs, so that unchanged files need no conversion.

An entry holds only as long as the tool, the settings, the formatter, the modular file, the generated files, and all
files that the conversion has read are the same. Only contents are compared, never times, so entries survive a fresh
checkout at the same path, and each file is read once. Entries hold hashes and findings, no code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping

from modular_converter.check.cache import store
from modular_converter.check.cache.entries import CacheEntries, CacheEntry, unpack_finding
from modular_converter.check.cache.key import key_of, packages_above, remembered_versions
from modular_converter.convert.conversion import EXISTS, MISSING, UNREADABLE, Conversion
from modular_converter.convert.emit.banner import source_path
from modular_converter.files.generated_files import path_of_generated
from modular_converter.files.read import contents, find_package, read_inside
from modular_converter.settings.disk import FileTooLarge
from modular_converter.settings.values import Settings


class CurrentHashes:
    """The hashes of files at the time when each is first asked for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._hashes: dict[str, str | None] = {}
        """Path -> hash, or the word instead of a hash; None for a file that cannot or may not be read."""

    def matches(self, path: str, value: str) -> bool:
        """Whether a file has not changed since a conversion read it. A file that may not be read has changed.

        Args:
            value: a value of `Conversion.reads`.
        """
        if value == EXISTS:
            return os.path.isfile(path)
        if path not in self._hashes:
            self.read([path])
        return self._hashes[path] == value != UNREADABLE

    def read(self, paths: Iterable[str]) -> None:
        """Read files ahead, folder by folder, which takes a fifth less time than one by one."""
        by_folder: dict[str, list[str]] = {}
        for path in paths:
            folder, _, name = path.rpartition(os.sep)
            by_folder.setdefault(folder, []).append(name)
        for folder, names in by_folder.items():
            for name, content in contents(folder, names, self._settings):
                self._hashes[f"{folder}{os.sep}{name}"] = _hash(content)


def _hash(content: bytes | Exception) -> str | None:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    if isinstance(content, (FileNotFoundError, NotADirectoryError)):
        return MISSING
    return UNREADABLE if isinstance(content, FileTooLarge) else None


OTHER_FORM = (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""The errors that entries of another form cause. Such entries count as absent."""


class FilesOnDisk(Mapping[str, str]):
    """Generated files that are current on disk. A text is read on first use."""

    def __init__(self, paths: Iterable[str], settings: Settings) -> None:
        self._paths, self._settings = dict.fromkeys(paths), settings

    def __getitem__(self, path: str) -> str:
        if path not in self._paths:
            raise KeyError(path)
        return read_inside(path_of_generated(path, self._settings), self._settings).decode()

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


class ReadsOfEntry(Mapping[str, str]):
    """`Conversion.reads` of an entry, built on first use: few checks need it."""

    def __init__(self, entry: CacheEntry, entries: CacheEntries) -> None:
        self._entry, self._entries = entry, entries

    @functools.cached_property
    def _reads(self) -> dict[str, str]:
        files = (self._entries.files[number] for number in self._entry.reads)
        return {self._entries.path(name): value for name, value in files}

    def __getitem__(self, path: str) -> str:
        return self._reads[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._reads)

    def __len__(self) -> int:
        return len(self._entry.reads)


class Cache:
    """The entries in a folder that were made with these settings. A folder that cannot be read or written is no error."""

    def __init__(self, folder: str, settings: Settings, *, errors_only: bool = False) -> None:
        self.folder, self.settings = folder, settings
        self._errors_only = errors_only
        self._key = key_of(settings, remembered_versions(folder))
        self._hashes = CurrentHashes(settings)
        self._packages: dict[str, str] = {}
        self._found_packages: dict[str, str] = {}
        self._is_file = functools.lru_cache(maxsize=None)(os.path.isfile)
        self.is_ordered = False
        """Whether the entries of the conversions found say that no two modular files need each other."""

    def look_up(self, paths: Iterable[str]) -> dict[str, Conversion]:
        """The conversions that still hold, by modular file: the generated files on disk are their result."""
        by_folder: dict[str, list[str]] = {}
        for path in paths:
            by_folder.setdefault(folder_of_entries(path), []).append(path)
        self.is_ordered = len(by_folder) == 1  # files of several folders may need each other
        found: dict[str, Conversion] = {}
        for folder, some in by_folder.items():
            with contextlib.suppress(*OTHER_FORM):
                found.update(self._look_up_in(folder, some))
        return found

    def _look_up_in(self, folder: str, paths: Iterable[str]) -> Iterator[tuple[str, Conversion]]:
        """The same for modular files in one folder of models."""
        entries = self._load(folder)
        self.is_ordered &= entries.is_ordered
        asked = {path: entry for path in paths if (entry := entries.get(path))}
        changed = self._changed({number for one in asked.values() for number in (*one.gives, *one.reads)}, entries)
        for path, entry in asked.items():
            if changed.isdisjoint(entry.gives) and changed.isdisjoint(entry.reads) and self._is_there(path, entry):
                yield path, self._conversion(path, entry, entries)

    def _changed(self, numbers: Iterable[int], entries: CacheEntries) -> set[int]:
        """The numbers of the files that have changed. Most entries name the same files."""
        files = {number: (entries.path(entries.files[number][0]), entries.files[number][1]) for number in numbers}
        self._hashes.read(path for path, value in files.values() if value != EXISTS)
        return {number for number, (path, value) in files.items() if not self._hashes.matches(path, value)}

    def _is_there(self, path: str, entry: CacheEntry) -> bool:
        """Whether a modular file is at the place of its entry, and its packages are where they were."""
        return entry.place == self._place(path) and all(self._package(one) == at for one, at in entry.packages.items())

    def _package(self, asked: str) -> str:
        """The folder of a package as it is found now. Many entries ask for the same."""
        if asked not in self._found_packages:
            beside, name = os.path.split(asked)
            self._found_packages[asked] = find_package(name, beside, self._is_file) or ""
        return self._found_packages[asked]

    def _conversion(self, path: str, entry: CacheEntry, entries: CacheEntries) -> Conversion:
        files = [entries.path(entries.files[number][0]) for number in entry.gives]
        if self.settings.output_dir:  # a conversion names its files as if they stood beside the modular file
            files = [os.path.join(os.path.dirname(path), os.path.basename(file)) for file in files]
        return Conversion(
            path,
            FilesOnDisk(files, self.settings),
            ()
            if self._errors_only
            else tuple(unpack_finding(one) for one in entry.findings),  # an entry holds only warnings
            reads=ReadsOfEntry(entry, entries),
            packages=entry.packages,
            requires=frozenset(entries.path(name) for name in entry.requires),
        )

    def store(self, conversions: Iterable[Conversion]) -> None:
        """Store the successful conversions, and remove the oldest cache files beyond the limits."""
        by_folder: dict[str, list[Conversion]] = {}
        for conversion in conversions:
            if conversion.files and not conversion.failed:
                by_folder.setdefault(folder_of_entries(conversion.path), []).append(conversion)
        if not by_folder or not self._key:
            return
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            for folder, converted in by_folder.items():
                entries = self._load(folder)  # read again, since other runs may have stored entries meanwhile
                for one in converted:
                    entries.add(
                        one,
                        self._place(one.path),
                        {file: path_of_generated(file, self.settings) for file in one.files},
                    )
                key = self._key_for(folder)
                store.write_entry(self.folder, key, entries.dump(key, self.settings))
            store.bound(self.folder)

    def _load(self, folder: str) -> CacheEntries:
        entries, key = CacheEntries(folder), self._key_for(folder)
        content = store.read_entry(self.folder, key) if self._key else None
        if content is not None:
            entries.load(content, key)
        return entries

    def _key_for(self, folder: str) -> str:
        return store.digest(f"{self._key}\0{folder}".encode("utf-8", "surrogatepass"))

    def _place(self, path: str) -> str:
        """The facts about the place of a file that decide its conversion: the path in its banner, the folders that are
        packages.
        """
        above = packages_above(path.rpartition(os.sep)[0], self._packages, self._is_file)
        return f"{source_path(path, self.settings)} {above}"


def folder_of_entries(path: str) -> str:
    """The folder of models of a modular file."""
    return path.rsplit(os.sep, 2)[0]
