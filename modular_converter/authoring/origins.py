"""The objects behind imports: two imports in different words may bind the same one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from weakref import WeakKeyDictionary

from modular_converter.convert.inherit.resolve import neighbour_module
from modular_converter.convert.source.library import Library
from modular_converter.findings import UNPARSABLE, ConversionError
from modular_converter.model.index import index_module
from modular_converter.model.module import ImportedName, Module, Role


MOST_STEPS = 8
"""The most imports that are followed from file to file; longer chains are circles."""


def import_origin(name: ImportedName, path: str, library: Library) -> tuple[str, str]:
    """The place of the object that an import in the file `path` binds: two imports of one place bind one object.

    Inside of the package: the file and the name in it, "" for the module itself. Elsewhere: a dotted name and "". Plain
    imports are followed, and imports for type checkers in the `__init__.py` of a package, which list the names of a
    lazy package.
    """
    if not name.name and not name.asname:
        return f"import {name.module}", ""
    file = _file_of(name.module, path, library)
    if not file:
        return f"{name.module}.{name.name}".rstrip("."), ""
    return _follow(file, name.name, library, MOST_STEPS)


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
    settings = library.settings
    is_root = name.module == settings.package
    if not name.name or name.name == "*" or not (is_root or neighbour_module(name.module, settings)):
        return name
    place = _file_of(name.module, path, library)
    file, found = import_origin(name, path, library)
    top = _package_folder(path, settings.package)
    if file == place or found != name.name or not top or not os.path.isabs(file):
        return name
    folder = os.path.dirname(path)
    above = os.path.relpath(os.path.commonpath((folder, file)), folder)
    dots = "." if above == "." else "." * (above.count("..") + 1)
    below = os.path.relpath(file.removesuffix(".py").removesuffix("__init__"), os.path.join(folder, above))
    return ImportedName(dots + below.strip("./").replace(os.sep, "."), name.name, name.asname)


def _follow(file: str, name: str, library: Library, steps: int) -> tuple[str, str]:
    """The place in which the object `name` of a file is defined."""
    try:
        module = library.module(file)
    except ConversionError:
        return file, name
    if not name or name in module.definitions or not steps:
        return file, name
    for imported in _imports_of(name, file, module, library):
        other = _file_of(imported.module, file, library)
        if other:
            return _follow(other, name if imported.name == "*" else imported.name, library, steps - 1)
        return import_origin(imported, file, library)
    below = _existing(os.path.join(os.path.dirname(file), name), library) if _is_package(file) else ""
    return (below, "") if below else (file, name)


def _imports_of(name: str, file: str, module: Module, library: Library) -> Iterator[ImportedName]:
    """The imports of a file that bind a name, the effective one first."""
    for statement in reversed(module.statements):
        lazy = statement.role is Role.PROTECTED_IMPORT and _is_package(file) and "TYPE_CHECKING" in statement.condition
        if statement.role is not Role.IMPORT and not lazy:
            continue
        for one in statement.imports:
            if one.bound == name or (one.name == "*" and name in _exported(one.module, file, library)):
                yield one


_EXPORTED: WeakKeyDictionary[Library, dict[tuple[str, str], frozenset[str]]] = WeakKeyDictionary()
"""For each library: folder and module as a file in it imports it -> the names that `*` stands for."""


def _exported(module: str, path: str, library: Library) -> frozenset[str]:
    """The names of a star import of a module, from its `__all__` and, in a package, from those of its modules. They are
    read once: the package of all models has star imports of about a thousand files.
    """
    known = _EXPORTED.setdefault(library, {})
    key = os.path.dirname(path), module
    if key not in known:
        known[key] = frozenset()  # for packages with star imports of each other
        known[key] = _read_exported(module, path, library)
    return known[key]


def _read_exported(module: str, path: str, library: Library) -> frozenset[str]:
    file = _file_of(module, path, library)
    if not file:
        return frozenset()
    try:
        found = library.module(file) if _is_package(file) else _end_of(file, library)
    except ConversionError:
        return frozenset()
    stars = [one for statement in found.statements for one in statement.imports if one.name == "*"]
    below = (_exported(one.module, file, library) for one in stars) if _is_package(file) else ()
    return frozenset(found.exported).union(*below)


def _end_of(file: str, library: Library) -> Module:
    """A file from the first line on that begins with `__all__`: mostly its last lines, so that little is parsed."""
    text = "\n" + library.text(file)
    start = text.find("\n__all__")
    try:
        return index_module(text[start:] if start >= 0 else "", file)
    except UNPARSABLE:  # such as a line of a docstring
        return library.module(file)


def _file_of(module: str, path: str, library: Library) -> str:
    """The file of a module of the package, as a file `path` of it imports it; "" for any other module."""
    names = module.lstrip(".")
    folder = os.path.dirname(path)
    if level := len(module) - len(names):
        for _ in range(level - 1):
            folder = os.path.dirname(folder)
    else:
        first, _, names = names.partition(".")
        folder = _package_folder(path, library.settings.package) if first == library.settings.package else ""
        if not folder:
            return ""
    return _existing(os.path.join(folder, *names.split(".")) if names else folder, library)


def _existing(stem: str, library: Library) -> str:
    return next((one for one in (f"{stem}.py", os.path.join(stem, "__init__.py")) if library.exists(one)), "")


def _package_folder(path: str, package: str) -> str:
    """The folder of the package that a file lies in; "" where it lies in another one."""
    folder = os.path.dirname(path)
    while os.path.basename(folder) not in (package, ""):
        folder = os.path.dirname(folder)
    return folder if os.path.basename(folder) == package else ""


def _is_package(file: str) -> bool:
    return os.path.basename(file) == "__init__.py"
