"""Where an imported name is defined: a package hands on the names of its modules (`utils` those of `utils.generic`)."""

from __future__ import annotations

import os
from typing import NamedTuple

from modular_converter.convert.inherit.resolve import module_path
from modular_converter.convert.source.library import Library
from modular_converter.findings import ConversionError
from modular_converter.model.module import Module


DEEPEST = 10
"""The most modules through which a name is followed; longer chains are circles."""


class DefinitionPlace(NamedTuple):
    """A definition, or a module where `name` is ""."""

    path: str
    name: str = ""


def place_of(module: str, name: str, beside: str, library: Library, depth: int = 0) -> DefinitionPlace | None:
    """The definition behind `from module import name` in a file of the folder `beside`; None if it cannot be found.

    Args:
        module: dotted, relative or absolute.
        name: "" for the module itself.
    """
    path = _file_of(module, beside, library)
    found = _read(path, library) if path else None
    if path is None or found is None or depth > DEEPEST:
        return None
    if not name:
        return DefinitionPlace(path)
    if name in found.definitions:
        return DefinitionPlace(path, name)
    imported = found.imported.get(name)
    if imported is not None and _file_of(imported.module, os.path.dirname(path), library) != path:
        return place_of(imported.module, imported.name, os.path.dirname(path), library, depth + 1)
    name = imported.name if imported is not None else name  # `from . import name` in a package is its module
    dot = "" if module.endswith(".") else "."
    submodule = _file_of(f"{module}{dot}{name}", beside, library)
    return DefinitionPlace(submodule) if submodule else None


def _file_of(module: str, beside: str, library: Library) -> str | None:
    """The file of a module or package that exists."""
    path = module_path(module, beside, library.find_package)
    if path is None:
        return None
    folder = path.removesuffix(".py")
    candidates = (path, os.path.join(folder, "__init__.py"))
    return next((candidate for candidate in candidates if library.exists(candidate)), None)


def _read(path: str, library: Library) -> Module | None:
    try:
        return library.module(path)
    except ConversionError:
        return None
