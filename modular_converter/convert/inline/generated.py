"""The files generated from one modular file, each with its definitions in order."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from modular_converter.convert.conversion import Origin
from modular_converter.model import lexer
from modular_converter.model.bindings import Bindings, bindings_of
from modular_converter.model.members import class_node
from modular_converter.model.module import ImportedName, Role
from modular_converter.model.nodes import dotted, parse, walk


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

    @cached_property
    def bindings(self) -> Bindings:
        """What it does with names when it is created, and later."""
        return bindings_of(*parse(self.text).body)

    @cached_property
    def called(self) -> frozenset[str]:
        """The names that it calls when it is created, decorators included."""
        nodes = (one for node in parse(self.text).body for one in getattr(node, "decorator_list", ()))
        return self.bindings.calls_now.union(dotted(one).partition(".")[0] for one in nodes)


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
    """The definitions, each behind those that Python needs when it creates it: the bases and decorators of a class, even
    if a base uses its heirs in a method, and what its code reads at once. The published files already have such an order.
    """
    by_name = {one.name: one for one in definitions}
    ordered: dict[str, EmittedDefinition] = {}
    entered: set[str] = set()
    unfinished: set[str] = set()  # those that use definitions further below

    def emit(one: EmittedDefinition) -> None:
        if one.name in entered:
            return
        entered.add(one.name)
        if one.uses & by_name.keys() - entered or not unfinished.isdisjoint(one.uses):
            unfinished.add(one.name)
            for name in sorted((one.header_uses | one.bindings.needs) & by_name.keys()):
                emit(by_name[name])
            running = sorted(one.called & by_name.keys())
            for name in running:  # the list grows meanwhile
                for use in sorted(by_name[name].uses & by_name.keys()):
                    emit(by_name[use])
                    if by_name[use].role is Role.FUNCTION and use not in running:
                        running.append(use)
        ordered[one.name] = one

    for one in definitions:
        emit(one)
    return list(ordered.values())
