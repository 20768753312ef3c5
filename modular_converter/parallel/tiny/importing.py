"""Import a model's modules from their files, or from texts that replace files."""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType

from modular_converter.parallel.errors import BuildError


class _TextLoader(importlib.abc.ExecutionLoader):
    """Runs a text under the name of a file; no bytecode is written."""

    def __init__(self, path: str, source: str) -> None:
        self.path, self.source = path, source

    def get_source(self, fullname: str) -> str:
        return self.source

    def get_filename(self, fullname: str) -> str:
        return self.path


class _TextFinder(importlib.abc.MetaPathFinder):
    """Finds modules whose files are replaced by texts (``lay_over``)."""

    def __init__(self) -> None:
        self.texts: dict[str, tuple[str, str]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self.texts:
            return None
        place, source = self.texts[fullname]
        loader = _TextLoader(place, source)
        return importlib.util.spec_from_file_location(fullname, place, loader=loader)


_FINDER = _TextFinder()


def lay_over(texts: Sequence[tuple[str, str, str]]) -> None:
    """Replace the file of each ``(module, path, source)`` by the source in later imports.

    Modules that were imported from other texts are removed from ``sys.modules``, so that the next import runs the new text.
    """
    if not texts:
        return
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    if any(_FINDER.texts.get(name) != (path, source) for name, path, source in texts):
        for name, path, source in texts:
            _FINDER.texts[name] = (path, source)
            sys.modules.pop(name, None)


def reach(folder: str) -> None:
    """Put a folder first in ``sys.path``, unless it is there already."""
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)


def import_file(name: str, path: str) -> ModuleType:
    """Import the module ``name`` from the file ``path``.

    Raises ``BuildError`` if the module's code fails, or the name belongs to another file.
    """
    try:
        module = importlib.import_module(name)
    except Exception as error:  # the module is the user's own code and may raise anything
        raise BuildError(f"{path}: importing it as {name} fails: {type(error).__name__}: {error}") from error
    found = os.path.realpath(module.__file__ or "")
    if found != os.path.realpath(path):
        top = name.partition(".")[0]
        raise BuildError(
            f"{path}: the name {name} belongs to {found}: another package {top!r} comes first; install the one of this "
            "file in its place (pip install -e), or rename it"
        )
    return module
