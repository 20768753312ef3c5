"""Import a model's modules from their files, or from texts in place of files that do not exist yet."""

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
    """Finds the modules of the texts that were laid over the disk last."""

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
    """Let each ``(module, path, source)`` stand for the file at its path from now on.

    Modules that were imported from another text are forgotten, so that the next import sees the new one.
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
    """Put a folder on the path of imports, if it is not there."""
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)


def import_file(name: str, path: str) -> ModuleType:
    """Import the module ``name`` and make sure that it is the one at ``path``.

    Raises ``BuildError`` if the module's code fails, or another package of that name has been imported already.
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
