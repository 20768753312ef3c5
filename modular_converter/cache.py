"""Remember which generated files were right for which contents, so that a check of them need not convert again.

An entry holds hashes alone. It counts only when the tool, its settings, its formatter and the contents of every file
that the conversion read are as they were; what is damaged or cannot be read is no entry.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from modular_converter import __version__
from modular_converter.config import Settings
from modular_converter.emit.banner import source_path
from modular_converter.emit.format import formatter_stamp
from modular_converter.records import Conversion
from modular_converter.source.library import package_of


VARIABLE = "MODULAR_CONVERTER_CACHE"
MAX_ENTRIES = 4096
"""One entry a modular file, of a few kilobytes; the oldest are removed."""
SETTLED_NS = 50_000_000
"""A file changed later than this before a run may have changed while it was read: nothing is remembered of it."""
_SUFFIX = ".json"
_EXTENDS = re.compile(r"(?<![\w-])extend[\"']?\s*=")


def cache_folder() -> str:
    """`$MODULAR_CONVERTER_CACHE`, else where the platform keeps caches."""
    configured = os.environ.get(VARIABLE)
    if configured:
        return os.path.abspath(configured)
    import platformdirs

    return platformdirs.user_cache_dir("modular-converter", appauthor=False)


def clear(folder: str) -> int:
    """Remove all entries; return how many there were."""
    return sum(_remove(path) for path in _entries(folder))


@dataclass
class Cache:
    """The entries in a folder, as far as they are about these settings. Raises for no fault of the folder."""

    folder: str
    settings: Settings
    started_ns: int = field(default_factory=time.time_ns)
    _hashes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._stamp = _digest(repr(_facts(self.settings)).encode())
        self._usable = not _EXTENDS.search(self.settings.ruff_config)  # the text of what it extends is not known here

    def look_up(self, path: str) -> Conversion | None:
        """The conversion of a modular file, when it is known and the generated files on disk are what it gives."""
        if not self._usable:
            return None
        try:
            with open(self._place(path), "rb") as file:
                checksum, _, body = file.read().partition(b"\n")
            if checksum.decode("ascii") != _digest(body):
                return None
            entry = json.loads(body)
            if entry["key"] != self._key(path):
                return None
            reads, files = dict(entry["reads"]), dict(entry["files"])
            if any(self._hash(name) != value for name, value in {**reads, **files}.items()):
                return None
            return Conversion(path, {name: _text(name) for name in files}, reads=tuple(reads))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def store(self, conversions: Iterable[Conversion]) -> None:
        """Remember the conversions of which nothing is to be said and whose generated files are right on disk."""
        for conversion in conversions:
            if self._usable and conversion.files and not conversion.diagnostics:
                with contextlib.suppress(OSError, ValueError):
                    self._store(conversion)
        kept = _entries(self.folder)
        if len(kept) > MAX_ENTRIES:
            for path in sorted(kept, key=_age)[: len(kept) - MAX_ENTRIES]:
                _remove(path)

    def _store(self, conversion: Conversion) -> None:
        names = {*conversion.reads, conversion.path}
        files = {name: _digest(text.encode()) for name, text in conversion.files.items()}
        if not all(self._is_settled(name) for name in names | files.keys()):
            return
        reads = {name: self._hash(name) for name in sorted(names)}
        if any(self._hash(name) != value for name, value in files.items()):
            return
        body = json.dumps({"key": self._key(conversion.path), "reads": reads, "files": files}).encode()
        place = self._place(conversion.path)
        os.makedirs(self.folder, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=self.folder, suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(body).encode("ascii") + b"\n" + body)
            os.replace(temporary, place)
        except BaseException:
            _remove(temporary)
            raise

    def _key(self, path: str) -> str:
        facts = (path, self._stamp, source_path(path, self.settings), package_of(os.path.dirname(path)))
        return _digest(repr(facts).encode("utf-8", "surrogatepass"))

    def _place(self, path: str) -> str:
        return os.path.join(self.folder, _digest(path.encode("utf-8", "surrogatepass")) + _SUFFIX)

    def _hash(self, path: str) -> str:
        """The hash of a file's content, "" when there is no such file; each is read once."""
        if path not in self._hashes:
            try:
                with open(path, "rb") as file:
                    self._hashes[path] = _digest(file.read())
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                self._hashes[path] = ""
        return self._hashes[path]

    def _is_settled(self, path: str) -> bool:
        """Whether a file is as it was when the run began; `ctime` is the one time that copying cannot set."""
        try:
            return os.stat(path).st_ctime_ns < self.started_ns - SETTLED_NS
        except (FileNotFoundError, NotADirectoryError):
            return True


def _facts(settings: Settings) -> tuple[object, ...]:
    """All but the files themselves that decides what a conversion gives."""
    black = _stat(settings.black_config_path) if settings.black_config_path else ()
    here = os.path.dirname(os.path.abspath(__file__))
    own = [
        _stat(os.path.join(folder, name))
        for folder, folders, names in sorted(os.walk(here))
        for name in sorted(names)
        if name.endswith((".py", ".toml"))
    ]
    tool = (__version__, sys.version, formatter_stamp(settings))
    return (tool, own, black, tuple(sys.path), replace(settings, workers=0))


def _stat(path: str) -> tuple[object, ...]:
    facts = os.stat(path)
    return (path, facts.st_size, facts.st_mtime_ns)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _text(path: str) -> str:
    with open(path, encoding="utf-8", newline="") as file:
        return file.read()


def _entries(folder: str) -> list[str]:
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(_SUFFIX)]
    except OSError:
        return []


def _age(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _remove(path: str) -> bool:
    try:
        os.unlink(path)
    except OSError:
        return False
    return True
