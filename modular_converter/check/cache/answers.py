"""What was found in texts, kept by the content of the files that it follows from; the indexes of texts among it."""

from __future__ import annotations

import contextlib
import os
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from modular_converter.check.cache import store
from modular_converter.check.cache.key import tool_stamp
from modular_converter.check.cache.lookup import OTHER_FORM
from modular_converter.convert.source.library import KNOWN, Library, Observations
from modular_converter.findings import EXISTS, MISSING, UNREADABLE


class KeptAnswers:
    """Answers by name, as values that JSON knows. Those of an earlier run hold if every file that they were read from is
    the same.
    """

    def __init__(self, folder: str | None, key: str) -> None:
        """
        Args:
            folder: of the cache; None to remember nothing.
            key: what decides all answers but for the texts; "" to remember nothing.
        """
        self._folder = folder if key else None
        self._name = store.digest(f"answers {key}".encode("utf-8", "surrogatepass"))
        self._known = store.read_values(self._folder, self._name) if self._folder else {}
        self._is_new = False

    def get(self, name: str, library: Library, make: Callable[[Library], Any], about: str = "") -> Any:
        """An answer. If it is not known, `make` finds it, in what `about` says, and in texts that it reads through the library
        that it gets, and in nothing else.
        """
        with contextlib.suppress(*OTHER_FORM):  # of none, too
            subject, answer, reads, packages = self._known[name]
            if subject == about and are_same(reads, packages, library):
                return answer
        seen = Observations()
        answer = make(library.observing(seen))
        self._known[name] = about, answer, seen.files, seen.packages
        self._is_new = True
        return answer

    def store(self) -> None:
        """Keep the answers for the next run. A folder that cannot be written to is no error."""
        if self._is_new and self._folder:
            store.keep_values(self._folder, self._name, self._known)


def are_same(reads: Mapping[str, str], packages: Mapping[str, str], library: Library) -> bool:
    """Whether files and packages are as they were observed, see `Observations`."""
    for path, value in reads.items():
        if value in (EXISTS, MISSING):
            if library.exists(path) != (value == EXISTS):
                return False
        elif value == UNREADABLE or library.text_if_readable(path) is None or library.hash(path) != value:
            return False
    asked = ((*os.path.split(one), folder) for one, folder in packages.items())
    return all((library.find_package(name, beside) or "") == folder for beside, name, folder in asked)


MOST_INDEXES = 5_000
"""Of texts that are remembered, the newest: both trees of a library with 560 models have 3,500."""


class KeptIndexes:
    """The indexes of texts, while it is open: no text is parsed for its index twice, in this run or a later one."""

    def __init__(self, folder: str | None, about: str = "") -> None:
        """
        Args:
            folder: of the cache; None to remember nothing.
            about: which texts, where others are kept apart from them.
        """
        self._folder = folder
        self._name = store.digest(f"indexes {tool_stamp()!r}{about}".encode("utf-8", "surrogatepass"))
        KNOWN.indexes = store.read_values(folder, self._name) if folder else None
        KNOWN.take_made()

    def store(self, made: Iterable[Mapping[str, Any]] = ()) -> None:
        """Remember those that this process and others have made, and forget the oldest."""
        new = dict(ChainMap(KNOWN.take_made(), *map(dict, made)))
        if new and self._folder:
            whole = [*{**(KNOWN.indexes or {}), **new}.items()]
            store.keep_values(self._folder, self._name, dict(whole[-MOST_INDEXES:]))
        KNOWN.indexes = None
