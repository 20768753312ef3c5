"""The objects behind imports: two imports in different words may bind the same one."""

from __future__ import annotations

import os
from dataclasses import replace

from modular_converter.convert.inherit.resolve import neighbour_module
from modular_converter.convert.source.library import Library
from modular_converter.model.module import ImportedName, Module, Role
from modular_converter.model.resolver import Definition
from modular_converter.settings.parent_folders import is_below


def import_origin(name: ImportedName, path: str, library: Library) -> Definition | str:
    """What an import in the file `path` binds: two imports with the same origin bind one object.

    It is the dotted name where the definition cannot be found.
    """
    if not name.name and not name.asname:
        return f"import {name.module}"
    found = library.resolver.definition(name.module, name.name, os.path.dirname(path))
    return found or f"{name.module}.{name.name}".rstrip(".")


def in_portable_words(module: Module, path: str, library: Library) -> Module:
    """A module whose imports are changed to the defining file if a conversion refuses the imported file.

    These are imports from the root of the package, and imports from a neighbour of what it only imports.
    """
    statements = []
    for one in module.statements:
        if one.role is Role.IMPORT:
            one = replace(one, imports=tuple(_portable(name, path, library) for name in one.imports))
        statements.append(one)
    return replace(module, statements=tuple(statements))


def _portable(name: ImportedName, path: str, library: Library) -> ImportedName:
    settings, folder = library.settings, os.path.dirname(path)
    is_root = name.module == settings.package
    if not name.name or name.name == "*" or not (is_root or neighbour_module(name.module, settings)):
        return name
    found = library.resolver.definition(name.module, name.name, folder)
    if found is None or found.name != name.name or found.path == library.resolver.file(name.module, folder):
        return name
    top = library.find_package(settings.package, folder)
    if top is None or not is_below(folder, top) or not is_below(found.path, top):
        return name
    above = os.path.relpath(os.path.commonpath((folder, found.path)), folder)
    dots = "." if above == "." else "." * (above.count("..") + 1)
    below = os.path.relpath(found.path.removesuffix(".py").removesuffix("__init__"), os.path.join(folder, above))
    return ImportedName(dots + below.strip("./").replace(os.sep, "."), name.name, name.asname)
