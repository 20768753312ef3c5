"""What names mean in the files of a tree, as values: classes, functions, constants, and things of other packages."""

from __future__ import annotations

import ast
import builtins
import os
import textwrap
from collections.abc import MutableMapping

from modular_converter.breaking.values import ClassValue, Expression, External, FunctionValue, Value
from modular_converter.convert.source.library import Library
from modular_converter.findings import ConversionError
from modular_converter.model.bindings import FUNCTIONS
from modular_converter.model.module import ImportedName, Role, Statement
from modular_converter.model.nodes import parse, walk, written
from modular_converter.model.resolver import Definition


Assigned = tuple[str, ast.expr, int]
"""An assignment at the top level: its file, the expression, and the line above the statement."""


class Names:
    """The meanings of names at the top level of files, each read once."""

    def __init__(self, library: Library, parsed: MutableMapping[Definition, Value | Assigned | None]) -> None:
        """`parsed` holds the definitions that were parsed before, for other models, too."""
        self.library = library
        self._parsed = parsed
        self._known: dict[tuple[str, str], Value | Assigned | None] = {}
        self._ancestors: dict[ClassValue, tuple[ClassValue | External, ...]] = {}

    def meaning(self, path: str, name: str) -> Value | Assigned | None:
        """What a name at the top level of a file means; None where nothing tells it."""
        key = path, name
        if key not in self._known:
            self._known[key] = None  # for names that need each other
            self._known[key] = self._find(path, name)
        return self._known[key]

    def class_named(self, path: str, name: str) -> ClassValue | None:
        """The class that a name means in a file."""
        found = self.meaning(path, name)
        return found if isinstance(found, ClassValue) else None

    def _find(self, path: str, name: str) -> Value | Assigned | None:
        try:
            module = self.library.module(path)
        except ConversionError:
            return None
        imported = None if module.is_made(name) else module.imported.get(name)
        if imported is not None and not self.library.resolver.is_own(imported.module, os.path.dirname(path)):
            return External(external_name(imported))
        found = self.library.resolver.name_in(path, name)
        if found is None:
            return External(f"builtins.{name}") if hasattr(builtins, name) else None
        return self._defined(found)

    def _defined(self, found: Definition) -> Value | Assigned | None:
        if found.name is None:
            return External(f"file:{found.path}")
        if found.name == "*":
            return None
        module = self.library.module(found.path)
        statement = module.definitions.get(found.name)
        if statement is None:
            imported = module.imported.get(found.name)
            return External(external_name(imported)) if imported is not None else None
        if found not in self._parsed:
            self._parsed[found] = _value_of(found.path, found.name, statement)
        return self._parsed[found]

    def ancestors(self, cls: ClassValue) -> tuple[ClassValue | External, ...]:
        """A class and its bases, in the order in which Python looks methods up."""
        if cls not in self._ancestors:
            self._ancestors[cls] = (cls,)  # for classes that are bases of each other
            bases = [found for base in cls.bases if (found := self._base(cls.path, base)) is not None]
            orders: list[list[ClassValue | External]] = [
                list(self.ancestors(one)) if isinstance(one, ClassValue) else [one] for one in bases
            ]
            self._ancestors[cls] = (cls, *_merged([*orders, list(bases)]))
        return self._ancestors[cls]

    def _base(self, path: str, base: str) -> ClassValue | External | None:
        first, _, rest = base.partition("[")[0].strip().partition(".")
        found = self.meaning(path, first) if first else None
        if isinstance(found, External):
            return External(f"{found.name}.{rest}" if rest else found.name)
        return found if isinstance(found, ClassValue) and not rest else None


def external_name(imported: ImportedName) -> str:
    """The dotted name of what an import binds."""
    if imported.name:
        return f"{imported.module}.{imported.name}"
    return imported.module if imported.asname else imported.bound


def _value_of(path: str, name: str, statement: Statement) -> Value | Assigned | None:
    above = statement.line - 1
    if statement.role is Role.CLASS and not statement.joined:
        return ClassValue(path, name, statement.line, statement.text, statement.bases)
    body = parse(statement.text).body
    for node in body if statement.role is Role.ASSIGNMENT else walk(*body):
        if isinstance(node, ast.ClassDef) and node.name == name:
            first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            lines = statement.text.split("\n")[first - 1 : node.end_lineno]
            return ClassValue(
                path, name, above + first, textwrap.dedent("\n".join(lines)), tuple(map(written, node.bases))
            )
        if isinstance(node, FUNCTIONS) and node.name == name:
            return FunctionValue(path, node, above)
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(one, ast.Name) and one.id == name for one in targets):
                return path, node.value, above
    return Expression(name)


def _merged(orders: list[list[ClassValue | External]]) -> list[ClassValue | External]:
    """The linear order of several orders (C3); where there is none, a base stands where it comes first."""
    found: list[ClassValue | External] = []
    rest = [[*order] for order in orders if order]
    while rest:
        heads = [order[0] for order in rest]
        free = next((one for one in heads if not any(_is_in(one, order[1:]) for order in rest)), heads[0])
        found.append(free)
        rest = [kept for order in rest if (kept := [one for one in order if not _same(one, free)])]
    return found


def _is_in(one: ClassValue | External, order: list[ClassValue | External]) -> bool:
    return any(_same(one, other) for other in order)


def _same(one: ClassValue | External, other: ClassValue | External) -> bool:
    if isinstance(one, External) and isinstance(other, External):
        return one.name == other.name
    return one is other
