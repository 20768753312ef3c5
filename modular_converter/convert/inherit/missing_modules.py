"""Imports of modules beside the model that do not exist: generated files have them too, and fail when they are imported."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from importlib.machinery import EXTENSION_SUFFIXES

from modular_converter.convert.inherit.resolve import ModularFile, neighbour_module
from modular_converter.convert.source.library import Library
from modular_converter.facts import MissingModule
from modular_converter.model.index import relative_imports
from modular_converter.model.module import ImportedName
from modular_converter.settings.values import split_stem


MODEL, MODELS = 1, 2
"""The dots of an import from the folder of the model, and from the folder of models. A tree may lack the folders above.
"""


def missing_modules(target: ModularFile, kinds: Collection[str], library: Library) -> list[MissingModule]:
    """The modules that a modular file imports and that neither exist nor will be generated.

    Imports that may fail, under `try` or a condition, are left out, as are neighbours, which the conversion looks for.

    Args:
        target: the modular file.
        kinds: the kinds of file that it gives.
        library: the files of the run.
    """
    folder = os.path.dirname(target.path)
    found: dict[str, MissingModule] = {}
    for statement in target.module.statements:
        for name in relative_imports(statement):
            path = _path(name, folder, library)
            if path and not exists(path, name.name, library) and not is_given(path, target, kinds, library):
                found[name.module] = MissingModule(name.module, looked_for(path, folder), statement.line)
    return [*found.values()]


def exists(path: str, name: str, library: Library) -> bool:
    """Whether `from path import name` finds a file; `path` has no suffix."""
    return any(map(library.exists, _files(path, name)))


def is_given(path: str, target: ModularFile, kinds: Collection[str], library: Library) -> bool:
    """Whether a run generates a file, from this modular file or from another one."""
    kind, model = split_stem(os.path.basename(path), library.settings.file_kinds) or ("", "")
    giver = os.path.join(os.path.dirname(path), f"modular_{model}.py")
    return kind in kinds if giver == target.path else bool(model) and library.exists(giver)


def looked_for(path: str, folder: str) -> str:
    """The file that was looked for, relative to a folder."""
    return os.path.relpath(f"{path}.py", folder).replace(os.sep, "/")


def _path(name: ImportedName, folder: str, library: Library) -> str:
    """The file of a relative import without its suffix; "" for an import from elsewhere, and for a neighbour."""
    names = name.module.lstrip(".")
    level = len(name.module) - len(names)
    if level not in (MODEL, MODELS) or not names or neighbour_module(name.module, library.settings):
        return ""
    if level == MODELS and names.partition(".")[0] in library.settings.no_models:
        return ""
    return library.resolver.stem(name.module, folder) or ""


def _files(path: str, name: str) -> Iterator[str]:
    """The files of which one has to exist for `from path import name`."""
    yield f"{path}.py"
    yield os.path.join(path, "__init__.py")
    yield os.path.join(path, f"{name}.py")  # in a folder that is no package
    yield from (path + suffix for suffix in EXTENSION_SUFFIXES)
