"""The content of one cache file: an entry for each modular file of one folder of models, its findings as plain values.

Most conversions read the same few neighbours, so the file lists each file with its hash once, and entries hold numbers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from modular_converter.check.cache.store import digest
from modular_converter.convert.conversion import Conversion
from modular_converter.findings import Edit, Finding, Fix, Location, Severity
from modular_converter.rules import place_of, rule_at
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
    """The inverse of `pack_finding`. Raises `ValueError`, `TypeError` or `LookupError` for any other value."""
    rule, (path, line, column, end_line, end_column), message, help, source_line, override, fix = values
    texts, numbers, optional = (rule, path, message, help, source_line), (line, column), (end_line, end_column)
    if not all(isinstance(text, str) for text in texts) or not all(type(number) is int for number in numbers):
        raise TypeError(values)
    if not all(number is None or type(number) is int for number in optional):
        raise TypeError(values)
    location = Location(path, line, column, end_line, end_column)
    severity = Severity(override) if override is not None else None
    return Finding(rule_at(rule), location, message, help, source_line, severity, _unpack_fix(fix))


def _unpack_fix(values: Sequence[Any] | None) -> Fix | None:
    if values is None:
        return None
    title, edits = values
    found = tuple(Edit(*edit) for edit in edits)
    is_right = isinstance(title, str) and all(isinstance(edit.text, str) for edit in found)
    if not is_right or not all(type(number) is int for edit in found for number in edit[:4]):
        raise TypeError(values)
    return Fix(title, found)


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
