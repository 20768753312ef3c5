"""The files that a modular file is made from, as far as its imports show without a conversion."""

from __future__ import annotations

import os
from collections import deque

from modular_converter.convert.inherit.ancestors import lineage
from modular_converter.convert.inherit.resolve import neighbour_module
from modular_converter.convert.source.library import Library, Observations
from modular_converter.findings import ConversionError
from modular_converter.model.module import Module, Role


def required_files(path: str, library: Library) -> frozenset[str]:
    """The neighbour files that the top level of a modular file imports from, whether they exist or not.

    None for a file that cannot be read or is not Python: its conversion reports the error.
    """
    imports = (one.imports for one in _module(path, library).statements if one.role is Role.IMPORT)
    names = (name for imported in imports for name in imported if neighbour_module(name.module, library.settings))
    folder = os.path.dirname(path)
    return frozenset(file for one in {name.module for name in names} if (file := library.resolver.path(one, folder)))


def ancestor_files(path: str, library: Library) -> frozenset[str]:
    """The files in which the ancestors of a module's classes are looked for, whether they exist or not.

    A conversion reads them when a modular file removes attributes, to know which attributes exist.
    None for a file that cannot be read or is not Python: the conversion stops there, too.
    """
    seen = Observations()
    library = library.observing(seen)
    module = _module(path, library)
    for name in module.classes:
        deque(lineage(name, module, library), maxlen=0)
    return frozenset(one for one in seen.files if os.path.isdir(os.path.dirname(one)))


def removes_attributes(path: str, library: Library) -> bool:
    """Whether a modular file may remove attributes of a parent."""
    return any("AttributeError" in one.text for one in _module(path, library).statements)


def _module(path: str, library: Library) -> Module:
    try:
        return library.module(path)
    except ConversionError:
        return Module(path, "", ())
