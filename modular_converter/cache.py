"""Remember what conversions gave, so that a check of files that are as they were need not convert again.

An entry counts only when the tool, its settings, its formatter, and the contents of the modular file, of the generated
files and of all that the conversion read are as they were. Of a neighbour, the statements that were looked at and the
shape of the module are enough (`source/parts.py`). Entries hold hashes and findings, no code. All is decided by
contents, never by times, so that entries survive a fresh checkout.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from modular_converter import entries
from modular_converter.config import Settings
from modular_converter.diagnostics import ConversionError
from modular_converter.emit.banner import source_path
from modular_converter.entries import digest
from modular_converter.findings import pack, unpack
from modular_converter.fingerprint import fingerprint, packages_above
from modular_converter.placement import target_of
from modular_converter.records import EXISTS, UNREADABLE, Conversion, Part
from modular_converter.source.links import refuse_link_out


if TYPE_CHECKING:
    from modular_converter.source.library import Library

_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""A pipe in the place of a file is opened without waiting for whoever writes into it."""


class OnDisk(Mapping[str, str]):
    """Generated files that are on disk as they should be: a text is read when it is asked for."""

    def __init__(self, paths: Iterable[str], settings: Settings) -> None:
        self._targets = {path: target_of(path, settings) for path in paths}

    def __getitem__(self, path: str) -> str:
        with open(self._targets[path], encoding="utf-8", newline="") as file:
            return file.read()

    def __iter__(self) -> Iterator[str]:
        return iter(self._targets)

    def __len__(self) -> int:
        return len(self._targets)


@dataclass
class Cache:
    """The entries in a folder, as far as they are about these settings. Raises for no fault of the folder."""

    folder: str
    settings: Settings
    _hashes: dict[str, str] = field(default_factory=dict)
    _packages: dict[str, tuple[bool, ...]] = field(default_factory=dict)
    _links: dict[str, bool] = field(default_factory=dict)
    _renewed: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stamp = fingerprint(self.settings)

    def look_up(self, path: str) -> Conversion | None:
        """The conversion of a modular file, when it is known and the generated files on disk are what it gives."""
        key = self._key(path) if self._stamp else ""
        body = entries.read(self.folder, key) if key else None
        if body is None:
            return None
        try:
            entry = json.loads(body)
            return self._checked(path, entry) if entry["key"] == key else None
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, ConversionError):
            return None

    def _checked(self, path: str, entry: dict[str, Any]) -> Conversion | None:
        """The conversion that an entry tells of, if it goes with what is on disk."""
        below = _Below(path)
        files = {below.absolute(name): value for name, value in entry["files"].items()}
        if any(self._seen(target_of(name, self.settings)) != value for name, value in files.items()):
            return None
        reads = {below.absolute(name): value for name, value in entry["reads"].items()}
        parts = {below.absolute(name): Part(tuple(one[0]), one[1]) for name, one in entry["parts"].items()}
        changed = {name for name, value in reads.items() if not self._is_as_it_was(name, value)}
        if not all(name in parts and _holds(name, parts[name], self._library) for name in changed):
            return None
        if changed:
            reads.update({name: self._seen(name) for name in changed})
            self._renewed[path] = {**entry, "reads": {below.short(name): value for name, value in reads.items()}}
        diagnostics = tuple(unpack(one) for one in entry["findings"])
        return Conversion(path, OnDisk(files, self.settings), diagnostics, reads=reads, parts=parts)

    def still_holds(self, conversion: Conversion, changed: Iterable[str], library: Library) -> bool:
        """Whether a known conversion stands when these of the files that it read are now as `library` has them."""
        parts = conversion.parts
        try:
            return all(name in parts and _holds(name, parts[name], library) for name in changed)
        except (ConversionError, LookupError):  # it is no Python any more, or shorter
            return False

    def store(self, conversions: Iterable[Conversion]) -> None:
        """Remember conversions that went through, and of known ones what has changed in their inputs."""
        bodies = dict(self._renewed)
        bodies.update({one.path: self._entry(one) for one in conversions if one.files and not one.failed})
        if not bodies or not self._stamp:
            return
        with contextlib.suppress(OSError, ValueError):
            for path, entry in bodies.items():
                entries.write(self.folder, self._key(path), json.dumps(entry).encode())
            entries.bound(self.folder)

    def _entry(self, conversion: Conversion) -> dict[str, Any]:
        """What is remembered of a conversion: nothing but what it saw and gave, whatever is on disk by now."""
        below = _Below(conversion.path)
        quoted = {conversion.path, *(one.location.path for one in conversion.diagnostics)}
        return {
            "key": self._key(conversion.path),
            "reads": {below.short(name): value for name, value in conversion.reads.items()},
            "parts": {below.short(name): one for name, one in conversion.parts.items() if name not in quoted},
            "files": {below.short(name): digest(text.encode()) for name, text in conversion.files.items()},
            "findings": [pack(one) for one in conversion.diagnostics],
        }

    @cached_property
    def _library(self) -> Library:
        """What reads the modules that have changed since they were remembered."""
        from modular_converter.source.library import Library

        return Library(self.settings)

    def _key(self, path: str) -> str:
        packages = packages_above(os.path.dirname(path), self._packages)
        facts = (path, self._stamp, source_path(path, self.settings), packages)
        return digest(repr(facts).encode("utf-8", "surrogatepass"))

    def _is_as_it_was(self, path: str, value: str) -> bool:
        return os.path.isfile(path) if value == EXISTS else self._seen(path) == value != UNREADABLE

    def _seen(self, path: str) -> str:
        """What stands for a file's content now. Each is read once."""
        value = self._hashes.get(path)
        if value is None:
            value = self._hashes[path] = self._hash(path)
        return value

    def _hash(self, path: str) -> str:
        """As `Library.reads` tells it: a hash, or "" for a file that is missing. Raises `OSError`, `ConversionError`."""
        folder = os.path.dirname(path)
        if folder not in self._links:
            self._links[folder] = os.path.islink(folder)
        if self._links[folder] or os.path.islink(path):
            refuse_link_out(path, self.settings)
        try:
            handle = os.open(path, os.O_RDONLY | _FLAGS)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        with open(handle, "rb", buffering=0) as file:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > self.settings.max_file_bytes:
                return UNREADABLE
            return digest(file.read())


def _holds(path: str, part: Part, library: Library) -> bool:
    """Whether what a conversion looked at in a module is as it was. Raises `ConversionError`, `IndexError`."""
    from modular_converter.source.parts import part_of

    return part_of(library.module(path), part.statements).digest == part.digest


class _Below:
    """Paths as an entry has them: short where they lie below the folder of models, as nearly all do."""

    def __init__(self, path: str) -> None:
        self.folder = os.path.join(os.path.dirname(os.path.dirname(path)), "")

    def short(self, path: str) -> str:
        """`llama/modeling_llama.py`; a path outside as it is."""
        return path[len(self.folder) :] if path.startswith(self.folder) else path

    def absolute(self, name: str) -> str:
        """The path that `short` was given."""
        return os.path.join(self.folder, name)
