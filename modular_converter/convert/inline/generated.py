"""The files generated from one modular file, each with its definitions in order."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from modular_converter.convert.conversion import Origin
from modular_converter.model import lexer
from modular_converter.model.members import class_node
from modular_converter.model.module import ImportedName, Role
from modular_converter.model.nodes import walk


_PLAIN_HEADER = re.compile(r"(?:@[\w.]+\n)*class \w+(?:\([^()\n#]*\))?:")
"""The form of most class headers, which are read without a syntax tree."""
_CLASS_LINE = re.compile(r"^class \w+(?:\([^()\n#]*\))?:", re.MULTILINE)


@dataclass(frozen=True)
class EmittedDefinition:
    """A definition of a generated file, under its final name."""

    name: str
    role: Role
    lead: str
    text: str
    uses: frozenset[str]
    origin: Origin
    is_store: bool = False
    """Whether its name is also imported: see `Statement.is_store` and `rebinds_import`."""
    inner_imports: tuple[ImportedName, ...] = ()
    """See `Statement.inner_imports`; as the target has them."""

    @cached_property
    def header_uses(self) -> frozenset[str]:
        """The names that a class needs when it is created: its decorators and bases; none for another definition."""
        if self.role is not Role.CLASS:
            return frozenset()
        header = _PLAIN_HEADER.match(self.text)
        if header is not None:
            return lexer.identifiers(header[0])
        node = _header_node(self.text)
        parts = walk(*node.decorator_list, *node.bases, *node.keywords)
        return frozenset(part.id for part in parts if isinstance(part, ast.Name))


def _header_node(text: str) -> ast.ClassDef:
    """The syntax tree of a class, without its body where the line that begins with `class` is easily found."""
    line = _CLASS_LINE.search(text)
    try:
        return class_node(f"{text[: line.end()]} ..." if line else text)
    except SyntaxError:  # the line belongs to a string
        return class_node(text)


@dataclass
class GeneratedFile:
    """A generated file while its definitions are gathered."""

    kind: str
    name: str
    first: tuple[str, ...] = ()
    """The names of the definitions that open the file, where it has them."""
    definitions: dict[str, EmittedDefinition] = field(default_factory=dict)
    other_kinds: set[str] = field(default_factory=set)
    """The classes that it imports from other generated files."""

    @property
    def ordered(self) -> list[EmittedDefinition]:
        """The definitions in the order of the file."""
        first = [self.definitions[name] for name in self.first if name in self.definitions]
        return with_bases_first(
            first + [definition for name, definition in self.definitions.items() if name not in self.first]
        )


@dataclass(frozen=True)
class GeneratedFiles:
    """All files generated from one modular file."""

    files: tuple[GeneratedFile, ...]
    kinds: Mapping[str, str] = field(default_factory=dict)
    """The kind of file of each class of the modular file."""

    def file(self, kind: str) -> GeneratedFile | None:
        """The file of a kind."""
        return next((file for file in self.files if file.kind == kind), None)


def with_bases_first(definitions: Sequence[EmittedDefinition]) -> list[EmittedDefinition]:
    """The definitions, with each class behind its bases and decorators, even if a base uses its heirs in a method. The
    published files already have such an order.
    """
    by_name = {one.name: one for one in definitions}
    ordered: dict[str, EmittedDefinition] = {}
    entered: set[str] = set()

    def emit(one: EmittedDefinition) -> None:
        if one.name in entered:
            return
        entered.add(one.name)
        for name in sorted(one.header_uses & by_name.keys()):
            emit(by_name[name])
        ordered[one.name] = one

    for one in definitions:
        emit(one)
    return list(ordered.values())
