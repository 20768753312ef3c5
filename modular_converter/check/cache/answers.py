"""What was found in texts, kept by the content of the files that it follows from; the outlines of modular files among it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from typing import Any

from modular_converter.check.cache import store
from modular_converter.check.cache.key import tool_stamp
from modular_converter.check.cache.lookup import OTHER_FORM
from modular_converter.convert.source.library import Library, Observations
from modular_converter.findings import EXISTS, MISSING, UNREADABLE
from modular_converter.graph.build import ClassHeader, Outline, outline_of
from modular_converter.model.module import ImportedName


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


class KeptOutlines(KeptAnswers):
    """The outlines of the files below a folder of models. No text is parsed twice."""

    def __init__(self, folder: str | None, models: str) -> None:
        """`folder` is that of the cache; None to remember nothing."""
        super().__init__(folder, f"outlines {tool_stamp()!r} {models}")

    def of(self, path: str, library: Library) -> Outline:
        """The outline of a file. Raises `ConversionError` for one that cannot be parsed."""
        return _unpacked(*self.get(path, library, lambda seen: _packed(outline_of(path, seen))))


def _packed(outline: Outline) -> tuple[Any, Any]:
    return [(line, (one.module, one.name, one.asname)) for line, one in outline.imports], outline.classes


def _unpacked(imports: list[tuple[int, list[str]]], classes: list[tuple[str, int, list[str]]]) -> Outline:
    return Outline(
        tuple((line, ImportedName(*name)) for line, name in imports),
        tuple(ClassHeader(name, line, tuple(bases)) for name, line, bases in classes),
    )
