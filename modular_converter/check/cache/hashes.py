"""What files hold now, as hashes. Nothing is concluded from times or sizes, and each file is read once."""

from __future__ import annotations

import errno
import hashlib
import os
import stat

from modular_converter.convert.conversion import EXISTS, UNREADABLE
from modular_converter.files.links import refuse_link_out
from modular_converter.settings.values import Settings


_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
"""A pipe in the place of a file is opened without waiting for whoever writes into it."""


class Contents:
    """The contents of files at the time when each is first asked for."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._hashes: dict[str, str] = {}
        self._links: dict[str, bool] = {}

    def of(self, path: str) -> str:
        """As `Library.reads` tells it: a hash, "" for a file that is missing, or `UNREADABLE`.

        Raises `OSError`, and `ConversionError` for a link out of the root.
        """
        value = self._hashes.get(path)
        if value is None:
            value = self._hashes[path] = self._hash(path)
        return value

    def are(self, path: str, value: str) -> bool:
        """Whether a file is what a conversion once saw of it. Raises as `of` does."""
        return os.path.isfile(path) if value == EXISTS else self.of(path) == value != UNREADABLE

    def _hash(self, path: str) -> str:
        try:
            handle = self._open(path)
        except (FileNotFoundError, NotADirectoryError):
            return ""
        try:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > self._settings.max_file_bytes:
                return UNREADABLE
            content = os.read(handle, facts.st_size + 1)
            if len(content) != facts.st_size:  # it is being written, or was read in part
                return UNREADABLE
            return hashlib.sha256(content).hexdigest()
        finally:
            os.close(handle)

    def _open(self, path: str) -> int:
        """A file as opened by the system, which tells most cheaply that it is a link."""
        folder = path.rpartition(os.sep)[0]
        if folder not in self._links:
            self._links[folder] = os.path.islink(folder)
        if _NO_FOLLOW and not self._links[folder]:
            try:
                return os.open(path, _FLAGS | _NO_FOLLOW)
            except OSError as error:
                if error.errno not in (errno.ELOOP, errno.EMLINK):
                    raise
        refuse_link_out(path, self._settings)
        return os.open(path, _FLAGS)
