"""What is remembered of the modular files of one folder of models: one file of the cache.

Most conversions read the same few neighbours. So each file that was read, with what was seen of it, stands there once,
and entries hold its position.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from modular_converter.check.cache.pack import pack
from modular_converter.check.cache.store import digest
from modular_converter.convert.conversion import Conversion


class Entry(NamedTuple):
    """What is remembered of one conversion: what it saw, and what it gave. No code."""

    place: str
    """A hash of what the place of the modular file decides."""
    reads: Sequence[int]
    """Positions of the files that it depends on."""
    files: Sequence[int]
    """Positions of those that it gives."""
    parts: str
    """JSON: file that counts in part only -> positions of its statements, and their hash."""
    packages: Mapping[str, str]
    findings: Sequence[Any]


class Remembered:
    """The entries by the name of their modular file, and the files by position: a name, and a hash of the content.

    Names are paths, short where they lie below the folder of models.
    """

    def __init__(self, folder: str) -> None:
        self._below = os.path.join(folder, "")
        self.entries: dict[str, Entry] = {}
        self.seen: list[tuple[str, str]] = []
        self.paths: list[str] = []
        """The paths of `seen`."""
        self.holds: dict[int, bool] = {}
        """By position: whether a file is as it was seen, where that has been looked at."""
        self._positions: dict[tuple[str, str], int] = {}

    def short(self, path: str) -> str:
        """`llama/modeling_llama.py`; a path outside as it is."""
        return path[len(self._below) :] if path.startswith(self._below) else path

    def load(self, body: bytes, key: str) -> bool:
        """Read what `dump` gave; False, and nothing read, when it is something else or of another key."""
        try:
            found = json.loads(body)
            if found["key"] != key:
                return False
            seen = [(name, value) for name, value in found["seen"]]
            entries = {name: Entry(*entry) for name, entry in found["entries"].items()}
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            return False
        self.seen, self.entries = seen, entries
        self.paths = [os.path.join(self._below, name) for name, _ in seen]
        return True

    def dump(self, key: str) -> bytes:
        """All entries whose modular file is still there, with the files that they name."""
        kept = Remembered(self._below)
        for name, entry in self.entries.items():
            if os.path.isfile(os.path.join(self._below, name)):
                kept.entries[name] = entry._replace(
                    reads=kept.positions(self.seen[number] for number in entry.reads),
                    files=kept.positions(self.seen[number] for number in entry.files),
                )
        return json.dumps({"key": key, "seen": kept.seen, "entries": kept.entries}).encode()

    def positions(self, seen: Iterable[tuple[str, str]]) -> list[int]:
        """The positions of files, which are added where they are new."""
        if len(self._positions) != len(self.seen):
            self._positions = {one: number for number, one in enumerate(self.seen)}
        numbers = []
        for one in seen:
            number = self._positions.setdefault(one, len(self.seen))
            if number == len(self.seen):
                self.seen.append(one)
                self.paths.append(os.path.join(self._below, one[0]))
            numbers.append(number)
        return numbers

    def add(self, conversion: Conversion, place: str, targets: Mapping[str, str]) -> None:
        """Remember a conversion that went through, whatever is on disk by now.

        Args:
            targets: where each generated file goes.
        """
        quoted = {conversion.path, *(one.location.path for one in conversion.diagnostics)}
        parts = {self.short(path): part for path, part in conversion.parts.items() if path not in quoted}
        self.entries[self.short(conversion.path)] = Entry(
            place,
            self.positions((self.short(path), value) for path, value in conversion.reads.items()),
            self.positions(
                (self.short(targets[path]), digest(text.encode())) for path, text in conversion.files.items()
            ),
            json.dumps(parts),
            dict(conversion.packages),
            [pack(one) for one in conversion.diagnostics],
        )
