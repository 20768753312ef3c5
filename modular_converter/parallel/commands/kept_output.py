"""What a command prints, kept with the state of all that it has read, so that the same command again imports no library.

An output is taken again for the same words, in the same folder and environment, of the same interpreter on the same
machine, as long as each file that was opened or imported for it is the same: its size, and its times of change to the
nanosecond, which nobody can set back. The same holds for the folders of these files and those of ``sys.path``, where a
new file could come first. What has changed since the command began is not known to be what it read: nothing is kept.
"""

from __future__ import annotations

import os
import platform
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from modular_converter.check.cache.store import cache_folder, digest
from modular_converter.parallel.kept_values import kept_value


_OF_SHELLS = {"_", "SHLVL", "PWD", "OLDPWD"}
"""Variables that differ from one call to the next without a meaning; the folder itself counts."""
_NO_FILES = ("/proc/", "/sys/", "/dev/")
_WRITES = os.O_WRONLY | os.O_RDWR
_COARSEST = 2_000_000_000
"""The nanoseconds by which the clock of a file system may be behind, or coarse."""


@dataclass(frozen=True)
class Output:
    """What a command prints on its two streams, and its exit code."""

    text: str
    code: int = 0
    errors: str = ""


def kept_output(asked: object, compute: Callable[[], Output]) -> Output:
    """The output that is kept, else the computed one, which is kept.

    Args:
        asked: the command with all its options, as ``repr`` writes them.
        compute: must depend on nothing but files, the environment and this machine; what it raises is not kept.

    Nothing is kept where torch is imported already: its state in this process may count, and no time would be saved.
    """
    if "torch" in sys.modules:
        return compute()

    def values() -> dict[str, Any]:
        begun = time.time_ns()
        with _Opened() as opened:
            found = compute()
        read = _by_folder({*map(os.path.abspath, opened), *_imported()})
        state = _state(read, begun - _COARSEST)
        return {"printed": [found.text, found.code, found.errors], "read": read, "state": state}

    environment = sorted((name, value) for name, value in os.environ.items() if name not in _OF_SHELLS)
    words = asked, os.getcwd(), sys.path, sys.version, sys.executable, sys.flags, platform.node(), environment
    found = kept_value(
        "outputs",
        digest(repr(words).encode("utf-8", "surrogateescape")),
        values,
        keeps=lambda value: bool(value["state"]),
        holds=lambda value: value["state"] == _state(value["read"]),
    )
    return Output(*found["printed"])


class _Opened:
    """Collects the paths of the files that Python opens to read inside of the context."""

    _paths: ClassVar[set[str] | None] = None
    _hooked = False

    def __enter__(self) -> set[str]:
        found: set[str] = set()
        _Opened._paths = found
        if not _Opened._hooked:  # Python keeps it to the end
            _Opened._hooked = True
            sys.addaudithook(_Opened._note)
        return found

    def __exit__(self, *exception: object) -> None:
        _Opened._paths = None

    @staticmethod
    def _note(event: str, values: tuple[Any, ...]) -> None:
        found = _Opened._paths
        if found is not None and event == "open" and isinstance(values[0], str) and not (values[2] or 0) & _WRITES:
            found.add(values[0])


def _imported() -> Iterator[str]:
    for module in list(sys.modules.values()):
        place = getattr(getattr(module, "__spec__", None), "origin", None)
        if isinstance(place, str) and os.path.isabs(place):
            yield place


def _by_folder(paths: Iterable[str]) -> dict[str, list[str]]:
    """Folder -> names of its files that count; the folders of ``sys.path`` count, too."""
    found: dict[str, list[str]] = defaultdict(list)
    found.update({os.path.abspath(one): [] for one in sys.path})
    beside = (*_NO_FILES, os.path.join(cache_folder(), ""))
    for path in paths:
        folder, name = os.path.split(path)
        if not path.startswith(beside) and os.path.basename(folder) != "__pycache__":
            found[folder].append(name)
    return {folder: sorted(names) for folder, names in sorted(found.items())}


def _state(read: dict[str, list[str]], begun: int | None = None) -> str:
    """A hash of the sizes and times of files and their folders; "" if one has changed since ``begun``, in nanoseconds."""
    facts: list[Any] = []
    for folder, names in read.items():
        for path in (folder, *(os.path.join(folder, name) for name in names)):
            try:
                found = os.stat(path)
            except OSError:  # what is not there yet counts as well
                facts.append(None)
                continue
            if begun is not None and max(found.st_mtime_ns, found.st_ctime_ns) >= begun:
                return ""
            facts.append((found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns))
    return digest(repr(facts).encode())
