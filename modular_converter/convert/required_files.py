"""The files that a modular file is made from, as far as its imports show without a conversion."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

from modular_converter.convert.inherit.resolve import module_path, neighbour_module
from modular_converter.convert.source.library import Library
from modular_converter.findings import ConversionError
from modular_converter.model.module import ImportedName, Module, Role


_WORD = re.compile(r"\w+")


def required_files(path: str, library: Library) -> frozenset[str]:
    """The neighbour files that the top level of a modular file imports from, whether they exist or not.

    None for a file that cannot be read or is not Python: its conversion reports the error.
    """
    imports = (one.imports for one in _module(path, library).statements if one.role is Role.IMPORT)
    names = (name for imported in imports for name in imported if neighbour_module(name.module, library.settings))
    return _files_of(names, path)


def ancestor_files(path: str, library: Library) -> frozenset[str]:
    """The files that the bases of a module's classes are imported from, whether they exist or not.

    A conversion reads them when a modular file removes attributes, to know which attributes exist.
    None for a file that cannot be read or is not Python: the conversion stops there, too.
    """
    module = _module(path, library)
    bases = {word for one in module.statements for base in one.bases for word in _WORD.findall(base)}
    return _files_of((name for bound, name in module.imported.items() if bound in bases), path)


def removes_attributes(path: str, library: Library) -> bool:
    """Whether a modular file may remove attributes of a parent."""
    return any("AttributeError" in one.text for one in _module(path, library).statements)


def _module(path: str, library: Library) -> Module:
    try:
        return library.module(path)
    except ConversionError:
        return Module(path, "", ())


def _files_of(names: Iterable[ImportedName], path: str) -> frozenset[str]:
    folder = os.path.dirname(path)
    return frozenset(file for module in {name.module for name in names} if (file := module_path(module, folder)))
