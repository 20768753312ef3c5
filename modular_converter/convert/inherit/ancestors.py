"""The classes that a class inherits from, in whatever modules they are defined."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator

from modular_converter.convert.inherit.resolve import module_path
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.module import Module, Role, Statement
from modular_converter.diagnostics import ConversionError
from modular_converter.facts.members import class_node


DEEPEST = 20
"""Ancestors of a class that are followed, one above the other; more are a circle."""


def lineage(name: str, module: Module, library: Library, depth: int = 0) -> Iterator[Statement | None]:
    """A class and its ancestors; None for each that cannot be read. `object` is left out."""
    if name == "object":
        return
    statement = module.definitions.get(name)
    if statement is None:
        elsewhere = _module_of(name, module, library) if depth <= DEEPEST else None
        if elsewhere is None:
            yield None
        else:
            yield from lineage(name, elsewhere, library, depth + 1)
    elif statement.role is not Role.CLASS or depth > DEEPEST:
        yield None
    else:
        yield statement
        for base in statement.bases:
            yield from lineage(base, module, library, depth + 1)


def _module_of(name: str, module: Module, library: Library) -> Module | None:
    """The module that a class is imported from, if its file can be read."""
    imported = module.imported.get(name)
    if imported is None or imported.name != name:
        return None
    path = module_path(imported.module, os.path.dirname(module.path))
    if path is None or not library.exists(path):
        return None
    try:
        return library.module(path)
    except ConversionError:
        return None


def attributes_set(statement: Statement, method: str) -> frozenset[str]:
    """The attributes that a method of a class sets on its first parameter."""
    if f"def {method}(" not in statement.text:
        return frozenset()
    functions = (node for node in class_node(statement.text).body if isinstance(node, ast.FunctionDef))
    return frozenset(
        node.attr
        for function in functions
        if function.name == method and function.args.args
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == function.args.args[0].arg
    )
