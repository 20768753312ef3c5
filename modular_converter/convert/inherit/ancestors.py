"""The classes that a class inherits from, in whatever modules they are defined."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

from modular_converter.convert.inherit.resolve import module_path
from modular_converter.convert.source.library import Library
from modular_converter.findings import ConversionError
from modular_converter.model.bindings import attributes_set
from modular_converter.model.members import class_node
from modular_converter.model.module import Module, Role, Statement


DEEPEST = 20
"""The most ancestors of a class, one above the other, that are followed; longer chains are circles."""


def lineage(
    name: str, module: Module, library: Library, mentions: str = "", depth: int = 0
) -> Iterator[Statement | None]:
    """A class and its ancestors; None for each that cannot be read, or whose module does not hold the text `mentions`.

    `object` is left out.
    """
    if name == "object":
        return
    statement = module.definitions.get(name)
    if statement is None:
        elsewhere = _module_of(name, module, library, mentions) if depth <= DEEPEST else None
        if elsewhere is None:
            yield None
        else:
            yield from lineage(name, elsewhere, library, mentions, depth + 1)
    elif statement.role is not Role.CLASS or depth > DEEPEST:
        yield None
    else:
        yield statement
        for base in statement.bases:
            yield from lineage(base, module, library, mentions, depth + 1)


def _module_of(name: str, module: Module, library: Library, mentions: str) -> Module | None:
    """The module that a class is imported from, if its file can be read and holds a text."""
    imported = module.imported.get(name)
    if imported is None or imported.name != name:
        return None
    path = module_path(imported.module, os.path.dirname(module.path))
    if path is None or not library.exists(path):
        return None
    try:
        # Parsing the base of all models takes as long as converting a small one.
        return library.module(path) if not mentions or mentions in library.text(path) else None
    except ConversionError:
        return None


def sets_attribute(statement: Statement, method: str, attribute: str) -> bool:
    """Whether a method of a class sets an attribute of its first parameter."""
    if f"def {method}(" not in statement.text or attribute not in statement.uses:
        return False
    functions = (node for node in class_node(statement.text).body if isinstance(node, ast.FunctionDef))
    return any(function.name == method and attribute in attributes_set(function) for function in functions)
