"""The order of a class and the definitions that it needs: pure graph code over names.

The definitions of the parent's module come first, in the order of that module; then those that are imported by name
from other neighbours; the definitions of the modular file come last.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from modular_converter.convert.inline.needed import OWN, Needs, Symbol


Key = tuple[int, int, bool, int]


@dataclass(frozen=True)
class Positions:
    """Where definitions stand, for sorting."""

    parent: Mapping[str, int]
    """Definitions of the parent's module -> position."""
    own: Mapping[str, int]
    """Definitions of the modular file -> line."""
    neighbours: Sequence[Mapping[str, int]]
    """For each neighbour, in the order of the imports: definitions -> line."""
    asked: Collection[str]
    """The names that the modular file itself imports, without the definitions that these need."""
    asked_from: Collection[int]
    """The neighbours from which functions or assignments are imported by name."""

    def key(self, symbol: Symbol) -> Key:
        """The sort key of a definition that a class needs."""
        name = symbol.name
        if symbol.source == OWN:
            return (2, 0, False, self.own[name])
        if name in self.parent:
            return (0, 0, False, self.parent[name])
        # As in the published files: the first neighbour that defines the name counts. For an imported name, and for
        # a class without a parent, only neighbours from which a function or assignment is imported count.
        # For a class with a parent, the definitions that imported functions need stand before those imported by name.
        everywhere = bool(self.parent) and name not in self.asked
        last = bool(self.parent) and name in self.asked
        for position, lines in enumerate(self.neighbours):
            if name in lines and (everywhere or position in self.asked_from):
                return (1, position, last, lines[name])
        return (1, len(self.neighbours), last, 0)


def emission_order(name: str, needs: Needs, needs_of: Callable[[Symbol], Needs], positions: Positions) -> list[Symbol]:
    """All definitions that class `name` needs, directly or through others, in the order in which they precede it.

    First the classes in the order of their module, each after the functions, assignments and classes that it needs
    itself. Then the functions and assignments of class `name`.
    """
    closure: dict[str, tuple[Symbol, Needs]] = {}
    todo = list(needs.classes.values())
    while todo:
        symbol = todo.pop()
        if symbol.name not in closure and symbol.name != name:
            closure[symbol.name] = (symbol, needs_of(symbol))
            todo += closure[symbol.name][1].classes.values()
    ordered: dict[str, Symbol] = {}

    def emit(symbol: Symbol) -> None:
        if symbol.name in visited or symbol.name not in closure:
            return
        visited.add(symbol.name)
        for needed in sorted(closure[symbol.name][1].classes.values(), key=positions.key):
            emit(needed)
        ordered.setdefault(symbol.name, symbol)

    visited: set[str] = set()
    for symbol, its_needs in sorted(closure.values(), key=lambda entry: positions.key(entry[0])):
        for function in sorted(its_needs.functions.values(), key=positions.key):
            ordered.setdefault(function.name, function)
        emit(symbol)
    for function in sorted(needs.functions.values(), key=positions.key):
        ordered.setdefault(function.name, function)
    return list(ordered.values())
