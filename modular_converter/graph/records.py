"""The graph as values: models, and an edge for each pair of heir and parent; and what the graph needs of a modular file, an
outline, which can be kept between runs, since it depends on nothing but the text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from modular_converter.model.module import ImportedName, Role, Statement


@dataclass(frozen=True)
class InheritedClass:
    """A class of a modular file that inherits from a neighbour's class."""

    name: str
    line: int
    """Of the class in the modular file."""
    parent: str
    """The class that it inherits from, as the neighbour calls it."""
    file: str
    """Name of the neighbour's file: `modeling_llama.py`."""


@dataclass(frozen=True)
class ImportedThing:
    """A definition that a modular file imports from a neighbour by name and does not inherit from."""

    name: str
    kind: str
    """`function`, `assignment`, `class`, or `unknown` where the neighbour's text does not define it."""
    file: str

    @property
    def description(self) -> str:
        """The kind of the import, in words."""
        return "imported by name" if self.kind == "unknown" else f"{self.kind} imported by name"


@dataclass(frozen=True)
class Edge:
    """The classes and other definitions that one model takes from another."""

    heir: str
    parent: str
    classes: tuple[InheritedClass, ...]
    """In the order of the modular file."""
    things: tuple[ImportedThing, ...]


@dataclass(frozen=True)
class ModelFile:
    """A file that was generated from a modular file of the model."""

    name: str
    lines: int


@dataclass(frozen=True)
class Model:
    """A folder of models: written by hand, or generated from its modular files."""

    name: str
    """The folder, from the folder of models on; the dotted package for one that lies in another package."""
    modular: tuple[str, ...] = ()
    """Its modular files: `gemma/modular_gemma.py`."""
    modular_lines: int = 0
    generated: tuple[ModelFile, ...] = ()
    depth: int = 0
    """Steps of the longest path to a model that inherits from none. Circles come last."""

    @property
    def generated_lines(self) -> int:
        """Lines of all its generated files."""
        return sum(file.lines for file in self.generated)

    @property
    def lines_saved(self) -> int | None:
        """Generated lines minus lines of the modular files; None for a model without generated files."""
        return self.generated_lines - self.modular_lines if self.generated else None


@dataclass(frozen=True)
class Graph:
    """Models by name and edges, both sorted."""

    title: str
    """The package of the models, or the folder that holds the folder of models."""
    models: Mapping[str, Model]
    edges: tuple[Edge, ...]
    selected: tuple[str, ...] = ()
    """The models that were asked for; none for the whole library."""

    @cached_property
    def parents(self) -> Mapping[str, tuple[Edge, ...]]:
        """Model -> its edges to its parents, the one with the most classes first."""
        return self._by("heir")

    @cached_property
    def heirs(self) -> Mapping[str, tuple[Edge, ...]]:
        """Model -> the edges of its direct heirs, the one with the most classes first."""
        return self._by("parent")

    def _by(self, end: str) -> Mapping[str, tuple[Edge, ...]]:
        found: dict[str, list[Edge]] = {name: [] for name in self.models}
        for edge in sorted(self.edges, key=lambda edge: (-len(edge.classes), edge.parent, edge.heir)):
            found[getattr(edge, end)].append(edge)
        return {name: tuple(edges) for name, edges in found.items()}

    def all_ancestors(self, name: str) -> dict[str, int]:
        """Ancestor -> steps of the shortest path to it."""
        return _reachable(name, {key: [edge.parent for edge in edges] for key, edges in self.parents.items()})

    def all_heirs(self, name: str) -> dict[str, int]:
        """Heir -> steps of the shortest path to it."""
        return _reachable(name, {key: [edge.heir for edge in edges] for key, edges in self.heirs.items()})

    @cached_property
    def heir_counts(self) -> Mapping[str, int]:
        """Model -> number of its direct and indirect heirs."""
        onward = {key: [edge.heir for edge in edges] for key, edges in self.heirs.items()}
        return {name: len(_reachable(name, onward)) for name in self.models}

    def around(self, names: Iterable[str]) -> Graph:
        """The part of the graph with these models, their ancestors and their heirs."""
        chosen = tuple(sorted(set(names)))
        kept = set(chosen)
        for name in chosen:
            kept.update(self.all_ancestors(name), self.all_heirs(name))
        models = {name: model for name, model in self.models.items() if name in kept}
        edges = tuple(edge for edge in self.edges if edge.heir in kept and edge.parent in kept)
        return replace(self, models=models, edges=edges, selected=chosen)


def _reachable(start: str, onward: Mapping[str, Iterable[str]]) -> dict[str, int]:
    """Each reachable node, except the start -> steps of the shortest path."""
    steps = {start: 0}
    latest = [start]
    while latest:
        reached = sorted({there for here in latest for there in onward.get(here, ())} - steps.keys())
        steps.update((there, steps[latest[0]] + 1) for there in reached)
        latest = reached
    del steps[start]
    return steps


class ClassHeader(NamedTuple):
    """The header of a class."""

    name: str
    line: int
    """The line of `class`, below the decorators."""
    bases: tuple[str, ...]


class Outline(NamedTuple):
    """The imports and classes at the top level of a file, in order."""

    imports: tuple[tuple[int, ImportedName], ...]
    """Each imported name, with the line of its statement."""
    classes: tuple[ClassHeader, ...]


def outline_of(statements: Iterable[Statement]) -> Outline:
    """The outline of a parsed file."""
    statements = tuple(statements)
    imports = ((one.line, name) for one in statements if one.role is Role.IMPORT for name in one.imports)
    headers = (ClassHeader(one.name, _header_line(one), tuple(one.bases)) for one in statements if one.bases)
    return Outline(tuple(imports), tuple(headers))


def key_of_text(text: str) -> str:
    """The key of a text among outlines: a hash."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _header_line(statement: Statement) -> int:
    header = re.search(r"^class\b", statement.text, re.MULTILINE)
    return statement.line + (statement.text.count("\n", 0, header.start()) if header else 0)
