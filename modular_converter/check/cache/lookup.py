"""The cache of the check: it knows the conversions of earlier runs, so that unchanged files need no conversion.

An entry holds only as long as the tool, the settings, the formatter, the modular file, the generated files, and all
files that the conversion has read are the same. Only contents are compared, never times, so entries survive a fresh
checkout at the same path, and each file is read once. Entries hold hashes and findings, no code.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from modular_converter.check.cache import store
from modular_converter.check.cache.key import key_of, packages_above, remembered_versions
from modular_converter.check.cache.store import digest
from modular_converter.files.read import contents, find_package, read_inside
from modular_converter.files.write import path_of_generated, source_path
from modular_converter.findings import EXISTS, MISSING, UNREADABLE, Conversion, Edit, Finding, Fix, Location, Severity
from modular_converter.rules import place_of, rule_at
from modular_converter.settings.disk import FileTooLarge
from modular_converter.settings.values import Settings


def pack_finding(finding: Finding) -> list[Any]:
    """A finding as values that JSON knows."""
    place, override = finding.location, finding.severity_override
    return [
        place_of(finding.rule),
        [place.path, place.line, place.column, place.end_line, place.end_column],
        finding.message,
        finding.help,
        finding.source_line,
        override.value if override else None,
        [finding.fix.title, finding.fix.edits] if finding.fix else None,
    ]


def unpack_finding(values: Sequence[Any]) -> Finding:
    """The inverse of `pack_finding`. Its values are what this tool has written: an entry has a hash of them."""
    rule, place, message, help, source_line, override, fix = values
    severity = Severity(override) if override is not None else None
    edits = Fix(fix[0], tuple(Edit(*edit) for edit in fix[1])) if fix is not None else None
    return Finding(rule_at(rule), Location(*place), message, help, source_line, severity, edits)


class CacheEntry(NamedTuple):
    """A successful conversion without its texts: the files that it depends on, and its results."""

    place: str
    """The facts about the place of the modular file that decide its result."""
    reads: Sequence[int]
    """Numbers of the files that it depends on."""
    gives: Sequence[int]
    """Numbers of the generated files."""
    requires: Sequence[str]
    """Names of the neighbour files that the modular file imports from."""
    packages: Mapping[str, str]
    """See `Conversion.packages`."""
    findings: Sequence[Any]
    """Its findings, packed."""


class CacheEntries:
    """The entries of one folder of models, by the name of their modular file.

    A name is a path relative to the folder, or absolute for a file outside.
    """

    def __init__(self, folder: str) -> None:
        self._folder = os.path.join(folder, "")
        self.by_name: dict[str, CacheEntry] = {}
        self.is_ordered = False
        """Whether no two modular files of the entries need each other. The same then holds for any part of the entries.
        """
        self.files: list[tuple[str, str]] = []
        """Number -> name of a file, and its hash or the word instead of a hash (see `Conversion.reads`)."""
        self._numbers: dict[tuple[str, str], int] = {}
        self._paths: dict[str, str] = {}

    def get(self, path: str) -> CacheEntry | None:
        """The entry of a modular file."""
        return self.by_name.get(self.name(path))

    def name(self, path: str) -> str:
        """The path below the folder (`llama/modeling_llama.py`); a path outside the folder is unchanged."""
        return path[len(self._folder) :] if path.startswith(self._folder) else path

    def path(self, name: str) -> str:
        """The path that a name stands for."""
        path = self._paths.get(name)  # most entries name the same files
        if path is None:
            path = self._paths[name] = os.path.join(self._folder, name)
        return path

    def load(self, content: bytes | str, key: str) -> None:
        """Read what `dump` has written. Content in another format or with another key is ignored."""
        try:
            found = json.loads(content)
            if found["key"] != key:
                return
            files = [(name, value) for name, value in found["files"]]
            by_name = {name: CacheEntry(*entry) for name, entry in found["entries"].items()}
            is_ordered = found["ordered"] is True
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return
        self.files, self.by_name, self.is_ordered = files, by_name, is_ordered

    def dump(self, key: str, settings: Settings) -> bytes:
        """All entries whose modular file still exists, with the files that they name."""
        from modular_converter.convert.schedule import (
            cycles,
            dependencies,
        )  # a check without changes stores nothing

        kept = CacheEntries(self._folder)
        for name, entry in self.by_name.items():
            if os.path.isfile(self.path(name)):
                reads, gives = (
                    kept._add_files(self.files[one] for one in some) for some in (entry.reads, entry.gives)
                )
                kept.by_name[name] = entry._replace(reads=reads, gives=gives)
        required = {self.path(name): [*map(self.path, one.requires)] for name, one in kept.by_name.items()}
        ordered = not cycles(dependencies(required, settings))
        return json.dumps({"key": key, "ordered": ordered, "files": kept.files, "entries": kept.by_name}).encode()

    def add(self, conversion: Conversion, place: str, targets: Mapping[str, str]) -> None:
        """Add the entry of a successful conversion. Its files may have changed since.

        Args:
            conversion: the conversion, with its formatted texts.
            place: see `CacheEntry.place`.
            targets: generated file -> where it is written.
        """
        gives = ((self.name(targets[path]), digest(text.encode())) for path, text in conversion.files.items())
        self.by_name[self.name(conversion.path)] = CacheEntry(
            place,
            self._add_files((self.name(path), value) for path, value in conversion.reads.items()),
            self._add_files(gives),
            [self.name(path) for path in sorted(conversion.requires)],
            conversion.packages,
            [pack_finding(one) for one in conversion.found],
        )

    def _add_files(self, files: Iterable[tuple[str, str]]) -> list[int]:
        """The numbers of files; new files are added."""
        if len(self._numbers) != len(self.files):
            self._numbers = {file: number for number, file in enumerate(self.files)}
        numbers = []
        for file in files:
            number = self._numbers.setdefault(file, len(self.files))
            if number == len(self.files):
                self.files.append(file)
            numbers.append(number)
        return numbers


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
                store.write_entry(self.folder, self._key_for(folder), self._content_with(folder, converted))
            store.bound(self.folder)

    def _content_with(self, folder: str, converted: Iterable[Conversion]) -> bytes:
        """The entries of a folder with further ones. They are read again, since other runs may have stored some."""
        entries = self._load(folder)
        for one in converted:
            targets = {file: path_of_generated(file, self.settings) for file in one.files}
            entries.add(one, self._place(one.path), targets)
        return entries.dump(self._key_for(folder), self.settings)

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
