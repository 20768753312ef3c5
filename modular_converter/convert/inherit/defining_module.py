"""The module of a package that defines a name. Imported only when a name is imported from a package by mistake."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from modular_converter.convert.source.library import Library


def defining_module(name: str, package: str, beside: str, library: Library) -> str:
    """The dotted module that defines `name`; "" if it is not found. Searched are the modules directly in the package,
    and those of the model with whose name `name` begins (`LlamaConfig`).

    Args:
        package: dotted, relative or absolute.
        beside: the folder of the file that imports from it.
    """
    folder = library.resolver.stem(package, beside)
    if folder is None:
        return ""
    definition = re.compile(rf"^(?:class|def)\s+{re.escape(name)}\b|^{re.escape(name)}\s*[:=]", re.MULTILINE)
    for path in _candidates(name, folder, library.settings.models_names):
        if definition.search(library.text_if_readable(path) or ""):
            parts = os.path.relpath(path, folder).removesuffix(".py").split(os.sep)
            return ".".join([package, *(part for part in parts if part != "__init__")])
    return ""


def _candidates(name: str, folder: str, models: Iterable[str]) -> Iterator[str]:
    """The files to look into: first those of the model with the longest fitting name, in folders of these names."""
    spelled = name.lower().replace("_", "")
    for one in (os.path.join(folder, name) for name in models):
        fitting = [entry for entry in _entries(one) if spelled.startswith(entry.replace("_", ""))]
        for model in sorted(fitting, key=lambda entry: (-len(entry), entry)):
            yield from _python_files(os.path.join(one, model))
    yield from _python_files(folder)
    yield from _python_files(os.path.join(folder, "utils"))


def _python_files(folder: str) -> Iterator[str]:
    """The modules of a folder, but for modular files, which nothing may be imported from."""
    names = (name for name in _entries(folder) if name.endswith(".py") and not name.startswith("modular_"))
    return (os.path.join(folder, name) for name in names)


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
