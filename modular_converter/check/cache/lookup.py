"""The cache of the check: it knows the conversions of earlier runs, so that unchanged files need no conversion.

An entry holds only as long as the tool, the settings, the formatter, the modular file, the generated files, and all
files that the conversion has read are the same. Only contents are compared, never times, so entries survive a fresh
checkout at the same path. CacheEntries hold hashes and findings, no code.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Mapping

from modular_converter.check.cache import store
from modular_converter.check.cache.entries import CacheEntries, CacheEntry
from modular_converter.check.cache.hashes import CurrentHashes
from modular_converter.check.cache.key import key_of, packages_above
from modular_converter.check.cache.pack import unpack_diagnostic
from modular_converter.convert.conversion import Conversion
from modular_converter.convert.emit.banner import source_path
from modular_converter.diagnostics import ConversionError
from modular_converter.files.generated_files import path_of_generated
from modular_converter.files.packages import find_package
from modular_converter.files.read import read_inside
from modular_converter.settings.values import Settings


class FilesOnDisk(Mapping[str, str]):
    """Generated files that are current on disk. Their texts are read only when somebody asks."""

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


class Cache:
    """The entries in a folder that were made with these settings. Trouble with the folder is never an error."""

    def __init__(self, folder: str, settings: Settings, *, errors_only: bool = False) -> None:
        self.folder, self.settings = folder, settings
        self._errors_only = errors_only
        self._key = key_of(settings)
        self._hashes = CurrentHashes(settings)
        self._entries: dict[str, CacheEntries] = {}
        self._unchanged: dict[tuple[str, int], bool] = {}
        self._packages: dict[str, tuple[bool, ...]] = {}

    def look_up(self, path: str) -> Conversion | None:
        """The conversion of a modular file, if it still holds and the generated files on disk are its result."""
        folder = _models_folder(path)
        if folder not in self._entries:
            self._entries[folder] = self._load(folder)
        entries = self._entries[folder]
        entry = entries.get(path)
        try:
            if entry is None or not self._holds(path, folder, entry, entries):
                return None
            return self._conversion(path, entry, entries)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, ConversionError):
            return None  # an entry of another form, or a file that may not be read

    def _holds(self, path: str, folder: str, entry: CacheEntry, entries: CacheEntries) -> bool:
        """Whether everything that an entry depends on is the same today."""
        return (
            entry.place == self._place(path)
            and all(self._is_unchanged(folder, number, entries) for number in (*entry.gives, *entry.reads))
            and all((find_package(name, os.path.dirname(path)) or "") == at for name, at in entry.packages.items())
        )

    def _is_unchanged(self, folder: str, number: int, entries: CacheEntries) -> bool:
        """Whether a file is the same today. Most entries name the same files, so the answers are kept."""
        known = self._unchanged.get((folder, number))
        if known is None:
            name, value = entries.files[number]
            known = self._unchanged[folder, number] = self._hashes.matches(entries.path(name), value)
        return known

    def _conversion(self, path: str, entry: CacheEntry, entries: CacheEntries) -> Conversion:
        files = [entries.path(entries.files[number][0]) for number in entry.gives]
        if self.settings.output_dir:  # a conversion names its files as if they stood beside the modular file
            files = [os.path.join(os.path.dirname(path), os.path.basename(file)) for file in files]
        return Conversion(
            path,
            FilesOnDisk(files, self.settings),
            ()
            if self._errors_only
            else tuple(unpack_diagnostic(one) for one in entry.findings),  # none of them is an error
            reads={entries.path(name): value for name, value in (entries.files[number] for number in entry.reads)},
            packages=entry.packages,
            requires=frozenset(entries.path(name) for name in entry.requires),
        )

    def store(self, conversions: Iterable[Conversion]) -> None:
        """Store the conversions that went through, and remove the oldest cache files beyond the bounds."""
        by_folder: dict[str, list[Conversion]] = {}
        for conversion in conversions:
            if conversion.files and not conversion.failed:
                by_folder.setdefault(_models_folder(conversion.path), []).append(conversion)
        if not by_folder or not self._key:
            return
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            for folder, converted in by_folder.items():
                entries = self._load(folder)  # anew: other runs may have stored something meanwhile
                for one in converted:
                    entries.add(
                        one,
                        self._place(one.path),
                        {file: path_of_generated(file, self.settings) for file in one.files},
                    )
                key = self._key_for(folder)
                store.write_entry(self.folder, key, entries.dump(key))
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
        """What a conversion takes from the place of its file: the path in its banner, and which folders are packages."""
        above = packages_above(os.path.dirname(path), self._packages)
        return f"{source_path(path, self.settings)} {''.join('01'[is_package] for is_package in above)}"


def _models_folder(path: str) -> str:
    return path.rsplit(os.sep, 2)[0]
