"""Conversions of stale files, which a comparison needs again and again until somebody writes them: kept with their texts.

They are looked up by the content of all that they depend on, other generated texts included that are not on disk. The
cache of the check holds no texts, since its entries are of files that are current.
"""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from modular_converter.check.cache import store
from modular_converter.check.cache.lookup import OTHER_FORM, Cache, CacheEntries, CacheEntry, folder_of_entries
from modular_converter.convert.silence import with_selected_findings
from modular_converter.findings import EXISTS, Conversion
from modular_converter.settings.values import Settings


if TYPE_CHECKING:
    from modular_converter.convert.source.library import Library

MOST_BYTES = 16 * store.MAX_ENTRY_BYTES
"""Of a file of entries that is unpacked. Generated texts are packed to a fifth."""


class _Kept(NamedTuple):
    entries: CacheEntries
    texts: dict[str, str]
    """Hash -> generated text."""


class StaleConversions(Cache):
    """The conversions that are kept with their texts. One that is damaged counts as absent."""

    def __init__(self, folder: str, settings: Settings) -> None:
        super().__init__(folder, settings)
        self._loaded: dict[str, _Kept] = {}
        self._found: dict[str, Mapping[str, str]] = {}
        """Modular file -> the generated files that were found."""

    def find(self, path: str, library: Library) -> Conversion | None:
        """The conversion of a modular file, if all that it depends on is what a library reads now."""
        folder = folder_of_entries(path)
        if folder not in self._loaded:
            self._loaded[folder] = self._load_texts(folder)
        entries, texts = self._loaded[folder]
        with contextlib.suppress(*OTHER_FORM):
            entry = entries.get(path)
            if entry is not None and self._is_there(path, entry) and self._is_made_from(entry, entries, library):
                return self._with_texts(path, entry, entries, texts)
        return None

    def _is_made_from(self, entry: CacheEntry, entries: CacheEntries, library: Library) -> bool:
        """Whether the files that an entry depends on are as they were, on disk or in the overlay of a library."""
        for name, value in (entries.files[number] for number in entry.reads):
            path = entries.path(name)
            is_same = (
                value in (EXISTS, library.hash(path)) if path in library.overlay else self._hashes.matches(path, value)
            )
            if not is_same:
                return False
        return True

    def _with_texts(
        self, path: str, entry: CacheEntry, entries: CacheEntries, texts: Mapping[str, str]
    ) -> Conversion | None:
        gives = [entries.files[number] for number in entry.gives]
        if any(store.digest(texts[value].encode()) != value for _, value in gives):
            return None
        conversion = self._conversion(path, entry, entries)
        files = self._found[path] = {entries.path(name): texts[value] for name, value in gives}
        return with_selected_findings(replace(conversion, files=files), self.settings)

    def keep(self, conversions: Iterable[Conversion]) -> None:
        """Store the successful conversions that are new."""
        self.store(one for one in conversions if one.files is not self._found.get(one.path))

    def _content_with(self, folder: str, converted: Iterable[Conversion]) -> bytes:
        entries, texts = self._load_texts(folder)
        for one in converted:
            entries.add(one, self._place(one.path), {file: file for file in one.files})
            texts.update((store.digest(text.encode()), text) for text in one.files.values())
        left = entries.dump(self._key_for(folder), self.settings).decode()
        wanted = {entries.files[number][1] for one in entries.by_name.values() for number in one.gives}
        body = json.dumps([left, {value: text for value, text in texts.items() if value in wanted}])
        return zlib.compress(body.encode(), 1)

    def _load_texts(self, folder: str) -> _Kept:
        entries, key = CacheEntries(folder), self._key_for(folder)
        packed = store.read_entry(self.folder, key) if self._key else None
        with contextlib.suppress(*OTHER_FORM, zlib.error):
            body = zlib.decompressobj().decompress(packed or b"", MOST_BYTES)  # what goes on behind them is no JSON
            left, texts = json.loads(body)
            if all(isinstance(text, str) for text in texts.values()):
                entries.load(left, key)
                return _Kept(entries, texts)
        return _Kept(entries, {})

    def _key_for(self, folder: str) -> str:
        told = "" if self.settings.strict else "errors alone"
        return store.digest(f"texts\0{told}\0{super()._key_for(folder)}".encode())
