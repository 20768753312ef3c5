"""The definitions that a generated class needs, and their order: pure graph code over names, without texts or syntax trees.

Two name spaces meet in a generated class. The *parent's module*, renamed, defines the names in inherited code. The
*table of the target* holds the functions and assignments of the modular file and those that it imports by name, with
their dependencies. Names in the child's code are looked up in the table first. Inherited code finds an entry of the
table only where the entry overrides a definition of the parent's module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from modular_converter.model.module import Role


OWN = ""
"""The source of definitions of the modular file itself."""

SIBLING = "."
"""The source of definitions that are copied from a sibling file."""


@dataclass(frozen=True)
class Symbol:
    """A definition without its text: its name, its role, and the names that it uses."""

    name: str
    source: str
    """`OWN`, or the neighbour that it comes from."""
    role: Role
    uses: Collection[str]
    is_overriding: bool = True
    """Whether it replaces the definition of the same name in the parent's module."""
    entered: frozenset[str] = frozenset()
    """The functions of the modular file that their decorators enter in this definition of a neighbour."""


@dataclass
class Needs:
    """The definitions that one class needs, not yet in order."""

    functions: dict[str, Symbol] = field(default_factory=dict)
    """Functions and assignments, their own dependencies included."""
    classes: dict[str, Symbol] = field(default_factory=dict)
    """The classes used by the class or by its functions, not followed further."""
    other_kinds: set[str] = field(default_factory=set)
    """Classes that belong to another generated file."""
    siblings: set[str] = field(default_factory=set)
    """Names to be copied from a sibling file."""


@dataclass(frozen=True)
class Scope:
    """The name spaces around one class."""

    parent: Mapping[str, Symbol]
    """The parent's module; empty for a class without a parent."""
    table: Mapping[str, Symbol]
    """The target's functions and assignments, own and imported, and the classes that imported ones need."""
    own_classes: Collection[str]
    """The classes of the modular file."""
    is_elsewhere: Callable[[str], bool]
    """Whether a class of the modular file or of the parent's module belongs to another kind of file."""
    siblings: Mapping[str, Symbol] = field(default_factory=dict)
    """The definitions of a sibling file that this file may copy."""
    sibling_imports: Collection[str] = ()
    """The names that the parent's module or the modular file import from that sibling."""
    imported: Collection[str] = ()
    """The names that the parent's module imports from other files of its model, and that this file therefore imports
    too.
    """
    is_copied_here: Callable[[Symbol], bool] = lambda symbol: False
    """Whether a neighbour's class is copied into this file although it has the name of another kind of file."""

    def needs(self, name: str, uses: Collection[str], child_uses: Collection[str]) -> Needs:
        """Follow what a class uses through functions and assignments; classes are only noted.

        Args:
            uses: every name in the generated class.
            child_uses: the names in the text of the class in the modular file.
        """
        needs = Needs()
        todo = [(use, use in child_uses and use in self.table, OWN, True) for use in sorted(uses)]
        seen: set[tuple[str, bool, str]] = set()
        while todo:
            use, by_table, source, direct = todo.pop()
            if use == name or (use, by_table, source) in seen:
                continue
            seen.add((use, by_table, source))
            if self._is_copied(use, source):
                needs.siblings.add(use)
                todo += [(other, False, SIBLING, False) for other in sorted(self.siblings[use].uses)]
            elif use in self.own_classes:
                if self.is_elsewhere(use):
                    needs.other_kinds.add(use)
            elif symbol := self._resolve(use, by_table, source, direct):
                if symbol.role is Role.CLASS:
                    if self.is_elsewhere(symbol.name) and not self.is_copied_here(symbol):
                        needs.other_kinds.add(symbol.name)
                    else:
                        needs.classes[symbol.name] = symbol
                else:
                    needs.functions[symbol.name] = symbol
                    todo += [(other, by_table and other in self.table, symbol.source, False) for other in symbol.uses]
                    todo += [(other, True, OWN, True) for other in symbol.entered]
        return needs

    def _is_copied(self, use: str, source: str) -> bool:
        """Whether this file copies the definition of a name, which it would otherwise import from its sibling."""
        if use not in self.siblings or use in self.table:
            return False
        if self.siblings[use].role is Role.CLASS:
            return self.is_elsewhere(use) or use not in self.parent
        return use not in self.parent and (source == SIBLING or use in self.sibling_imports)

    def _resolve(self, use: str, by_table: bool, source: str, direct: bool) -> Symbol | None:
        """The symbol behind a name.

        Args:
            by_table: whether the name was reached through the child's own code.
            source: where the definition that uses it comes from.
            direct: whether the class itself uses it.
        """
        listed = self.table.get(use)
        if use not in self.parent:
            if use in self.imported and listed is not None and listed.source != OWN:
                return None
            reachable = by_table or direct or (listed is not None and listed.source == source)
            return listed if reachable else None
        return listed if listed is not None and listed.is_overriding else self.parent[use]


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


def emission_order(
    name: str,
    needs: Needs,
    needs_of: Callable[[Symbol], Needs],
    reads_now: Callable[[Symbol], Collection[str]],
    positions: Positions,
) -> list[Symbol]:
    """All definitions that class `name` needs, directly or through others, in the order in which they precede it.

    First the classes in the order of their module, each after the functions, assignments and classes that it needs
    itself. Then the functions and assignments of class `name`. Of two classes that need each other, the one that is read
    by the definition of the other stands above it (`reads_now`); if none is, they keep the order of their module.
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
            back = closure[needed.name][1].classes if needed.name in closure else ()
            if symbol.name not in back or needed.name in reads_now(symbol):
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
