"""The hashes of files as they are now. Times and sizes decide nothing, and each file is read once."""

from __future__ import annotations

import hashlib
import os

from modular_converter.convert.conversion import EXISTS, MISSING, UNREADABLE
from modular_converter.files.read import read_inside
from modular_converter.settings.regular_file import FileTooLarge
from modular_converter.settings.values import Settings


class CurrentHashes:
    """The hashes of files at the time when each is first asked for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._hashes: dict[str, str] = {}

    def matches(self, path: str, value: str) -> bool:
        """Whether a file has not changed since a conversion read it.

        Raises `OSError` for a file that cannot be read, and `ConversionError` for a link out of the root.

        Args:
            path: the file.
            value: a value of `Conversion.reads`.
        """
        if value == EXISTS:
            return os.path.isfile(path)
        if path not in self._hashes:
            self._hashes[path] = self._hash(path)
        return self._hashes[path] == value != UNREADABLE

    def _hash(self, path: str) -> str:
        try:
            return hashlib.sha256(read_inside(path, self._settings)).hexdigest()
        except (FileNotFoundError, NotADirectoryError):
            return MISSING
        except FileTooLarge:
            return UNREADABLE
