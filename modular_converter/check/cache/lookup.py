"""Remember what conversions gave, so that a check of files that are as they were need not convert again.

An entry counts only when the tool, its settings, its formatter, and the contents of the modular file, of the generated
files and of all that the conversion read are as they were. Of a neighbour, the statements that were looked at and the
shape of the module are enough (`source/parts.py`). Entries hold hashes and findings, no code. All is decided by
contents, never by times, so that entries survive a fresh checkout at the same path.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from modular_converter.check.cache import store
from modular_converter.check.cache.file_format import Entry, Remembered
from modular_converter.check.cache.hashes import Contents
from modular_converter.check.cache.key import fingerprint, packages_above
from modular_converter.check.cache.pack import unpack
from modular_converter.check.cache.store import digest
from modular_converter.convert.conversion import Conversion, Part
from modular_converter.convert.emit.banner import source_path
from modular_converter.diagnostics import ConversionError
from modular_converter.files.generated_files import target_of
from modular_converter.files.packages import find_package
from modular_converter.settings.values import Settings


if TYPE_CHECKING:
    from modular_converter.convert.source.library import Library


class OnDisk(Mapping[str, str]):
    """Generated files that are on disk as they should be: a text is read when it is asked for."""

    def __init__(self, paths: Iterable[str], settings: Settings) -> None:
        self._paths, self._settings = dict.fromkeys(paths), settings

    def __getitem__(self, path: str) -> str:
        if path not in self._paths:
            raise KeyError(path)
        with open(target_of(path, self._settings), encoding="utf-8", newline="") as file:
            return file.read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


class Cache:
    """The entries in a folder, as far as they are about these settings. Raises for no fault of the folder."""

    def __init__(self, folder: str, settings: Settings, *, errors_only: bool = False) -> None:
        self.folder, self.settings = folder, settings
        self._errors_only = errors_only
        self._stamp = fingerprint(settings)
        self._contents = Contents(settings)
        self._packages: dict[str, tuple[bool, ...]] = {}
        self._remembered: dict[str, Remembered] = {}
        self._renewed: set[str] = set()

    def look_up(self, path: str) -> Conversion | None:
        """The conversion of a modular file, when it is known and the generated files on disk are what it gives."""
        remembered = self._of(path)
        entry = remembered.entries.get(remembered.short(path))
        if entry is None:
            return None
        try:
            return self._checked(path, entry, remembered)
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, ConversionError):
            return None

    def _checked(self, path: str, entry: Entry, remembered: Remembered) -> Conversion | None:
        """The conversion that an entry tells of, if it goes with what is on disk."""
        paths, seen = remembered.paths, remembered.seen
        if entry.place != self._place(path):
            return None
        if not all(self._is_as_before(remembered, number) for number in entry.files):
            return None
        if entry.packages and not all(self._is_found(name, path, where) for name, where in entry.packages.items()):
            return None
        changed = [number for number in entry.reads if not self._is_as_before(remembered, number)]
        if changed:
            if not self._stands(remembered, entry, [paths[number] for number in changed]):
                return None
            entry = self._renew(path, remembered, entry)
        files = [paths[number] for number in entry.files]
        if self.settings.output_dir:  # they are named as beside their modular file
            files = [os.path.join(os.path.dirname(path), os.path.basename(file)) for file in files]
        reads = {paths[number]: seen[number][1] for number in entry.reads}
        findings = () if self._errors_only else tuple(unpack(one) for one in entry.findings)  # none is an error
        return Conversion(path, OnDisk(files, self.settings), findings, reads=reads)

    def _is_as_before(self, remembered: Remembered, number: int) -> bool:
        found = remembered.holds.get(number)
        if found is None:
            path, value = remembered.paths[number], remembered.seen[number][1]
            found = remembered.holds[number] = self._contents.are(path, value)
        return found

    def _stands(
        self, remembered: Remembered, entry: Entry, changed: Iterable[str], library: Library | None = None
    ) -> bool:
        """Whether what the conversion looked at in these files is as it was. Raises `ConversionError`, `LookupError`."""
        parts = json.loads(entry.parts)
        for path in changed:
            found = parts.get(remembered.short(path))
            if found is None or (library or self._library).part(path, found[0]) != Part(tuple(found[0]), found[1]):
                return False
        return True

    def _renew(self, path: str, remembered: Remembered, entry: Entry) -> Entry:
        """The entry with the files that it names as they are now."""
        now = [
            remembered.seen[number]
            if self._is_as_before(remembered, number)
            else (remembered.seen[number][0], self._contents.of(remembered.paths[number]))
            for number in entry.reads
        ]
        renewed = entry._replace(reads=remembered.positions(now))
        remembered.entries[remembered.short(path)] = renewed
        self._renewed.add(path)
        return renewed

    def still_holds(self, conversion: Conversion, changed: Iterable[str], library: Library) -> bool:
        """Whether a known conversion stands when these of the files that it read are now as `library` has them."""
        remembered = self._of(conversion.path)
        try:
            entry = remembered.entries[remembered.short(conversion.path)]
            return self._stands(remembered, entry, changed, library)
        except (ConversionError, LookupError):  # it is no Python any more, or shorter
            return False

    def store(self, conversions: Iterable[Conversion]) -> None:
        """Remember conversions that went through, and of known ones what has changed in their inputs."""
        new = {conversion.path: conversion for conversion in conversions}
        by_folder: dict[str, list[str]] = {}
        for path in {*self._renewed, *(path for path, one in new.items() if one.files and not one.failed)}:
            by_folder.setdefault(_models_folder(path), []).append(path)
        if not by_folder or not self._stamp:
            return
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
            for folder, paths in by_folder.items():
                store.write(self.folder, self._key(folder), self._merged(folder, sorted(paths), new))
            store.bound(self.folder)

    def _merged(self, folder: str, paths: Iterable[str], new: Mapping[str, Conversion]) -> bytes:
        """What is to be remembered of a folder: these files, over what other runs have stored by now."""
        key = self._key(folder)
        merged, own = self._load(folder), self._remembered[folder]
        for path in paths:
            if path in new:
                targets = {file: target_of(file, self.settings) for file in new[path].files}
                merged.add(new[path], self._place(path), targets)
            else:
                entry = own.entries[own.short(path)]
                reads, files = (merged.positions(own.seen[one] for one in some) for some in (entry.reads, entry.files))
                merged.entries[own.short(path)] = entry._replace(reads=reads, files=files)
        return merged.dump(key)

    def _of(self, path: str) -> Remembered:
        folder = _models_folder(path)
        if folder not in self._remembered:
            self._remembered[folder] = self._load(folder)
        return self._remembered[folder]

    def _load(self, folder: str) -> Remembered:
        remembered = Remembered(folder)
        body = store.read(self.folder, self._key(folder)) if self._stamp else None
        if body is not None:
            remembered.load(body, self._key(folder))
        return remembered

    @cached_property
    def _library(self) -> Library:
        """What reads the modules that have changed since they were remembered."""
        from modular_converter.convert.source.library import Library

        return Library(self.settings)

    def _key(self, folder: str) -> str:
        return digest(f"{self._stamp}\0{folder}".encode("utf-8", "surrogatepass"))

    def _place(self, path: str) -> str:
        """What a conversion takes from the place of its file: the path in its banner, and the packages above."""
        above = packages_above(os.path.dirname(path), self._packages)
        return f"{source_path(path, self.settings)} {''.join('01'[is_package] for is_package in above)}"

    def _is_found(self, name: str, path: str, where: str) -> bool:
        return (find_package(name, os.path.dirname(path)) or "") == where


def _models_folder(path: str) -> str:
    return path.rsplit(os.sep, 2)[0]
