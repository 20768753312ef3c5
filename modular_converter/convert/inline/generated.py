"""The files generated from one modular file, each with its definitions in order."""

from __future__ import annotations

from dataclasses import dataclass, field

from modular_converter.convert.conversion import Origin
from modular_converter.convert.source.module import Role


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
    """See `Statement.is_store`."""


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
        return first + [definition for name, definition in self.definitions.items() if name not in self.first]


@dataclass(frozen=True)
class GeneratedFiles:
    """All files generated from one modular file."""

    files: tuple[GeneratedFile, ...]

    def file(self, kind: str) -> GeneratedFile | None:
        """The file of a kind."""
        return next((file for file in self.files if file.kind == kind), None)
