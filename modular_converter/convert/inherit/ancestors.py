"""The classes that a class inherits from, in whatever modules they are defined."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

from modular_converter.convert.source.library import Library
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
    found = library.resolver.name_in(module.path, name) if _may_hold(name, module, library, mentions) else None
    home = library.module(found.path) if found is not None else module
    statement = home.definitions.get(found.name or "") if found is not None else None
    if statement is None or statement.role is not Role.CLASS or depth > DEEPEST:
        yield None
        return
    yield statement
    for base in statement.bases:
        yield from lineage(base, home, library, mentions, depth + 1)


def _may_hold(name: str, module: Module, library: Library, mentions: str) -> bool:
    """Whether a class is looked for: in its own package alone, and there only in files that hold a text.

    Parsing the base of all models takes as long as converting a small one.
    """
    first = name.partition(".")[0]
    imported = module.imported.get(first) if first not in module.definitions else None
    if imported is None:
        return True
    folder = os.path.dirname(module.path)
    if not library.resolver.is_own(imported.module, folder):
        return False
    file = library.resolver.file(imported.module, folder) if mentions else None
    is_package = file is not None and os.path.basename(file) == "__init__.py"
    return file is None or is_package or mentions in (library.text_if_readable(file) or "")


def sets_attribute(statement: Statement, method: str, attribute: str) -> bool:
    """Whether a method of a class sets an attribute of its first parameter."""
    if f"def {method}(" not in statement.text or attribute not in statement.uses:
        return False
    functions = (node for node in class_node(statement.text).body if isinstance(node, ast.FunctionDef))
    return any(function.name == method and attribute in attributes_set(function) for function in functions)
