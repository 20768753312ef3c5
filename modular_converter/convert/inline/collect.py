"""The files generated from one modular file: their definitions are gathered, in order."""

from __future__ import annotations

import ast
import itertools
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from modular_converter.convert.inherit.build import BuiltClass
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood
from modular_converter.convert.inherit.resolve import is_sibling
from modular_converter.convert.inline.needed import OWN, Needs, Positions, Scope, Symbol, emission_order
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.rename import RenamedModule
from modular_converter.facts import GeneratedDefinition
from modular_converter.findings import ConversionError, Origin, locate_word
from modular_converter.model.bindings import bindings_of
from modular_converter.model.module import Role, Statement, has_postponed
from modular_converter.model.nodes import parse, walk
from modular_converter.rules import tool_errors
from modular_converter.settings.values import Settings, kind_of, module_name, split_stem


@dataclass
class GeneratedFile:
    """A generated file while its definitions are gathered."""

    kind: str
    name: str
    first: tuple[str, ...] = ()
    """The names of the definitions that open the file, where it has them."""
    definitions: dict[str, GeneratedDefinition] = field(default_factory=dict)
    other_kinds: set[str] = field(default_factory=set)
    """The classes that it imports from other generated files."""

    @property
    def ordered(self) -> list[GeneratedDefinition]:
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


def with_bases_first(definitions: Sequence[GeneratedDefinition]) -> list[GeneratedDefinition]:
    """The definitions, each behind those that Python needs when it creates it: the bases and decorators of a class, even
    if a base uses its heirs in a method, and what its code reads at once. The published files already have such an order.
    """
    by_name = {one.name: one for one in definitions}
    ordered: dict[str, GeneratedDefinition] = {}
    entered: set[str] = set()
    unfinished: set[str] = set()  # those that use definitions further below

    def emit(one: GeneratedDefinition) -> None:
        if one.name in entered:
            return
        entered.add(one.name)
        if one.uses & by_name.keys() - entered or not unfinished.isdisjoint(one.uses):
            unfinished.add(one.name)
            for name in sorted((one.header_uses | one.bindings.needs) & by_name.keys()):
                emit(by_name[name])
            running = sorted(one.bindings.calls_when_made & by_name.keys())
            for name in running:  # the list grows meanwhile
                for use in sorted(by_name[name].uses & by_name.keys()):
                    emit(by_name[use])
                    if by_name[use].role is Role.FUNCTION and use not in running:
                        running.append(use)
        ordered[one.name] = one

    for one in definitions:
        emit(one)
    return list(ordered.values())


def collect_definitions(
    neighbours: Neighbourhood, classes: Mapping[str, BuiltClass], library: Library
) -> GeneratedFiles:
    """Put each class into the file of its kind, after the definitions that it needs.

    Raises `ConversionError` where two files would import from each other.
    """
    moved: dict[str, str] = {}
    while True:
        collector = _Collector(neighbours, classes, library, moved)
        # A file that copies from its sibling comes after it.
        for name in sorted(classes, key=lambda name: collector.kinds[name] in library.settings.copied_kinds):
            collector.add(classes[name])
        collector.add_exported()
        collector.carry_imported()
        circle = collector.circle()
        if circle is None:
            files = sorted(collector.files.values(), key=lambda file: file.kind)
            return GeneratedFiles(tuple(files), collector.kinds)
        file, names = circle
        owns = {name for name, kind in collector.kinds.items() if kind == file.kind}
        if any(classes[name].uses & owns for name in names):
            text, path = library.text(neighbours.target.path), neighbours.target.path
            raise ConversionError(tool_errors.circular(locate_word(path, names[0], text), names[0], file.name))
        moved.update(dict.fromkeys(names, file.kind))


class _Collector:
    def __init__(
        self, neighbours: Neighbourhood, classes: Mapping[str, BuiltClass], library: Library, moved: Mapping[str, str]
    ) -> None:
        self.neighbours = neighbours
        self.classes = classes
        self.library = library
        self.settings = library.settings
        self.target = neighbours.target
        self.kinds = {name: kind_of(name, self.target.cased, self.settings) for name in classes}
        self.kinds.update(moved)
        self.files: dict[str, GeneratedFile] = {}
        self._beside: dict[str, Sequence[tuple[str, str, str]]] = {}

    def add(self, built: BuiltClass) -> None:
        """Put a class into its file."""
        self.library.note(built.name)
        kind = self.kinds[built.name]
        file = self.files.get(kind)
        if file is None:
            name = module_name(kind, self.target.model) + ".py"
            file = self.files[kind] = GeneratedFile(kind, name, self.settings.first_assignments)
        child_uses = built.statement.uses if built.parent else built.uses
        self._put_needed(file, built.name, built.neighbour, built.uses, child_uses)
        how = "merged" if built.parent else "written"
        origin = Origin(self.target.path, built.statement.line, built.name, how)
        file.definitions[built.name] = GeneratedDefinition(
            built.name, Role.CLASS, built.lead, built.text, built.uses, origin
        )

    def _put_needed(
        self, file: GeneratedFile, name: str, dotted: str, uses: Collection[str], child_uses: Collection[str]
    ) -> None:
        """Put what a definition needs into its file; `dotted` is the neighbour of its parent, or `OWN`."""
        kind = file.kind
        # The definitions that a file of this kind may copy from its sibling.
        sibling = self.files.get(self.settings.copied_kinds.get(kind, ""))
        copies = sibling.definitions if sibling else {}
        needs = self._scope(dotted, kind, copies).needs(name, uses, child_uses)
        siblings = set(needs.siblings)
        file.other_kinds |= needs.other_kinds

        def needs_of(symbol: Symbol) -> Needs:
            inner = self._scope(symbol.source, kind, copies).needs(symbol.name, symbol.uses, ())
            siblings.update(inner.siblings)
            file.other_kinds.update(inner.other_kinds)
            return inner

        ordered = emission_order(name, needs, needs_of, self._reads_now, self._positions(dotted))
        wanted = {one: copy for one, copy in copies.items() if one in siblings}
        self._put(file, ordered, wanted)

    def add_exported(self) -> None:
        """Put the functions and assignments that `__all__` names, and no class uses, at the end of the file of their kind."""
        there = {name for file in self.files.values() for name in file.definitions}
        exported = {*self.target.module.exported} - there
        for name, symbol in self.table.items() if exported else ():
            file = self.files.get(self._kind(name))
            if name in exported and symbol.role is not Role.CLASS and file is not None:
                dotted = symbol.source
                self._put_needed(file, name, dotted, symbol.uses, () if dotted else symbol.uses)
                file.definitions[name] = self._definition(symbol)

    def carry_imported(self) -> None:
        """Put into each file the functions and assignments that other files import from it, as those of a neighbour do:
        without them the import would fail.
        """
        for definition in [one for file in self.files.values() for one in file.definitions.values()]:
            built = self.classes.get(definition.name)
            source = built.neighbour if built else self.neighbours.at_path.get(definition.origin.path, OWN)
            for bound, beside, name in self._imported_beside(source) if source else ():
                if bound in definition.uses and bound in bindings_of(parse(definition.text)).module_reads:
                    self._carry(beside, name)
            for beside, name in self._imported_in_bodies(definition, source) if source else ():
                self._carry(beside, name)

    def _imported_in_bodies(self, definition: GeneratedDefinition, dotted: str) -> Iterator[tuple[str, str]]:
        """The functions and assignments that the functions of a definition from a neighbour import from files beside it:
        the other neighbour, and the name in the target.
        """
        renamed = self.neighbours.neighbours[dotted]
        nodes = walk(parse(definition.text)) if "from ." in definition.text else ()
        for node in (one for one in nodes if isinstance(one, ast.ImportFrom) and one.level == 1 and one.module):
            split = split_stem(node.module or "", self.settings)
            beside = f"{dotted.rpartition('.')[0]}.{module_name(split[0], renamed.neighbour.model)}" if split else OWN
            symbols = self._symbols(beside) if beside in self.neighbours.neighbours else {}
            names = (one.name for one in node.names)
            yield from ((beside, one) for one in names if one in symbols and symbols[one].role is not Role.CLASS)

    def _carry(self, dotted: str, name: str) -> None:
        """Put a function or assignment of a neighbour into the file of its kind, with all that it needs but classes."""
        stem = split_stem(dotted.rpartition(".")[2], self.settings)
        file = self.files.get(stem[0]) if stem else None
        if file is None or name in file.definitions:
            return
        needs = self._scope(dotted, file.kind, {}).needs("", (name,), ())
        if not (needs.classes or needs.other_kinds):
            symbols = sorted(needs.functions.values(), key=self._positions(dotted).key)
            file.definitions = {one.name: self._definition(one) for one in symbols} | file.definitions

    def _imported_beside(self, dotted: str) -> Sequence[tuple[str, str, str]]:
        """The functions and assignments that a neighbour imports from another one in its folder: the name by which it knows
        each, the other neighbour, and the name there; under the names of the target.
        """
        if dotted not in self._beside:
            renamed, found = self.neighbours.neighbours[dotted], list[tuple[str, str, str]]()
            for one in renamed.neighbour.module.imported.values():
                beside = f"{dotted.rpartition('.')[0]}{one.module}" if is_sibling(one.module) else OWN
                symbols = self._symbols(beside) if beside in self.neighbours.neighbours else {}
                new = renamed.import_in_target(one)
                if new.name in symbols and symbols[new.name].role is not Role.CLASS:
                    found.append((new.bound, beside, new.name))
            self._beside[dotted] = found
        return self._beside[dotted]

    def _put(self, file: GeneratedFile, ordered: list[Symbol], copies: Mapping[str, GeneratedDefinition]) -> None:
        """Put definitions before a class; copies from a sibling file stand behind the leading constants."""
        constants = list(itertools.takewhile(lambda symbol: symbol.role is Role.ASSIGNMENT, ordered))
        for symbol in constants:
            file.definitions.setdefault(symbol.name, self._definition(symbol))
        for name, copy in copies.items():
            file.definitions.setdefault(name, copy)
        for symbol in ordered[len(constants) :]:
            if symbol.name not in file.definitions:
                file.definitions[symbol.name] = self._definition(symbol)

    def _kind(self, name: str) -> str:
        return self.kinds.get(name) or kind_of(name, self.target.cased, self.settings)

    def circle(self) -> tuple[GeneratedFile, list[str]] | None:
        """A file in a circle with the file of the default kind: each imports classes from the other. With these
        classes.
        """
        default = self.settings.default_kind
        first = self.files.get(default)
        needed = {self._kind(name) for name in first.other_kinds} if first else set()
        for kind in sorted(needed & self.files.keys()):
            names = self.files[kind].other_kinds & self.classes.keys()
            if found := sorted(name for name in names if self.kinds[name] == default):
                return self.files[kind], found
        return None

    def _scope(self, dotted: str, kind: str, copies: Mapping[str, GeneratedDefinition]) -> Scope:
        parent = self._symbols(dotted) if dotted else {}
        siblings = {name: Symbol(name, OWN, copy.role, copy.uses) for name, copy in copies.items()}
        imports = self._sibling_imports(dotted, self.settings.copied_kinds[kind]) if siblings else ()
        beside = self._imports_beside(dotted, kind) if dotted else ()
        return Scope(
            parent,
            self.table,
            self.classes,
            lambda name: self._kind(name) != kind,
            siblings,
            imports,
            beside,
            lambda symbol: self._is_copied_here(symbol, kind),
        )

    def _is_copied_here(self, symbol: Symbol, kind: str) -> bool:
        """Whether a neighbour defines a class in a file of this kind, or no file exists from which to import it."""
        stem = os.path.splitext(os.path.basename(self.neighbours.neighbours[symbol.source].neighbour.path))[0]
        if (split_stem(stem, self.settings) or ("",))[0] == kind:
            return True
        other = self._kind(symbol.name)
        beside = os.path.join(os.path.dirname(self.target.path), module_name(other, self.target.model) + ".py")
        return other not in self.kinds.values() and not self.library.exists(beside)

    def _imports_beside(self, dotted: str, kind: str) -> set[str]:
        """The names that a neighbour imports from files of its folder which the target has too.

        A variant of `image_processing` does not import from `image_processing`.
        """
        renamed = self.neighbours.neighbours[dotted]
        generated = set(self.kinds.values()) - {self.settings.default_kind}
        found: set[str] = set()
        for name in renamed.neighbour.module.imported.values():
            split = split_stem(name.module[1:], self.settings) if name.module[:1] == "." else None
            if split and split[0] in generated and not kind.startswith(split[0]):
                found.add(renamed.import_in_target(name).bound)
        return found

    def _sibling_imports(self, dotted: str, sibling: str) -> set[str]:
        """The names that the modular file or a neighbour imports from the sibling file of a kind."""
        imports = list(self.target.module.imported.values())
        if dotted:
            renamed = self.neighbours.neighbours[dotted]
            imports += map(renamed.import_in_target, renamed.neighbour.module.imported.values())
        module = "." + module_name(sibling, self.target.model)
        return {name.bound for name in imports if name.module == module}

    def _symbols(self, dotted: str) -> Mapping[str, Symbol]:
        symbols = self._symbol_tables.get(dotted)
        if symbols is None:
            definitions = self.neighbours.neighbours[dotted].definitions
            entered = self._entered.get(dotted, {})
            symbols = self._symbol_tables[dotted] = dict(_symbols_of(dotted, definitions, entered, self.settings))
        return symbols

    @cached_property
    def _entered(self) -> Mapping[str, Mapping[str, frozenset[str]]]:
        """The functions of the modular file that their decorators enter in a definition of a neighbour."""
        found: dict[str, dict[str, frozenset[str]]] = {}
        written = self.library.module(self.target.path).definitions.items()
        decorated = [(name, one) for name, one in written if name in self.own and one.text.startswith("@")]
        for (name, one), (bound, taken) in itertools.product(decorated, self.neighbours.resolution.taken.items()):
            if bound in one.uses and bound == taken.name:
                renamed = self.neighbours.neighbours[taken.neighbour]
                for holder in renamed.neighbour.module.registered_in(one):
                    holders = found.setdefault(taken.neighbour, {})
                    new = renamed.definitions.renamer.name(holder)
                    holders[new] = holders.get(new, frozenset()) | {name}
        return found

    @cached_property
    def _symbol_tables(self) -> dict[str, Mapping[str, Symbol]]:
        return {}

    @cached_property
    def own(self) -> Mapping[str, Statement]:
        """The functions and assignments of the modular file."""
        definitions = self.target.module.definitions
        return {name: one for name, one in definitions.items() if one.role is not Role.CLASS}

    @cached_property
    def table(self) -> Mapping[str, Symbol]:
        """The target's own name space: see `inline.needed`."""
        entered = self.target.module.registered
        table = {
            name: _own_symbol(statement, entered.get(name, frozenset()), self.settings)
            for name, statement in self.own.items()
        }
        for source, asked in self.neighbours.taken.values():
            symbols = self._symbols(source)
            todo = [asked]
            while todo:
                name = todo.pop()
                if name not in symbols or name in table:
                    continue
                symbol = symbols[name]
                if symbol.role is Role.CLASS and name == asked:
                    continue
                if symbol.role is Role.CLASS and name in self.classes:
                    continue
                table[name] = symbol
                if symbol.role is not Role.CLASS:
                    todo += [use for use in symbol.uses if use in symbols]
        return table

    def _reads_now(self, symbol: Symbol) -> Collection[str]:
        """The names that the definition of a neighbour's class reads where it stands."""
        renamed = self.neighbours.neighbours.get(symbol.source)
        if renamed is None:
            return ()
        found = bindings_of(*parse(renamed.definitions.text(symbol.name)).body)
        return found.needs if has_postponed(renamed.neighbour.module) else found.reads_now

    def _positions(self, dotted: str) -> Positions:
        renamed = self.neighbours.neighbours
        parent = renamed[dotted].definitions.order if dotted else {}
        return Positions(parent, self.target.module.places, self._lines, self._asked, self._asked_from)

    @cached_property
    def _lines(self) -> list[Mapping[str, int]]:
        return [renamed.definitions.lines for renamed in self.neighbours.neighbours.values()]

    @cached_property
    def _asked(self) -> set[str]:
        return {name for _, name in self.neighbours.taken.values()}

    @cached_property
    def _asked_from(self) -> set[int]:
        order = {dotted: position for position, dotted in enumerate(self.neighbours.neighbours)}
        return {
            order[dotted]
            for dotted, name in self.neighbours.taken.values()
            if name in (definitions := self.neighbours.neighbours[dotted].definitions)
            and definitions.role(name) is not Role.CLASS
        }

    def _definition(self, symbol: Symbol) -> GeneratedDefinition:
        if symbol.source == OWN:
            statement, path, how = self.own[symbol.name], self.target.path, "written"
            imports = statement.inner_imports
        else:
            renamed = self.neighbours.neighbours[symbol.source]
            statement, path, how = renamed.definitions[symbol.name], renamed.neighbour.path, "copied"
            imports = tuple(map(renamed.import_in_target, statement.inner_imports))
        return GeneratedDefinition(
            symbol.name,
            statement.role,
            statement.lead,
            statement.text,
            statement.uses,
            Origin(path, statement.line, symbol.name, how),
            statement.is_store or statement.rebinds_import,
            imports,
        )


def _symbols_of(
    dotted: str, definitions: RenamedModule, entered: Mapping[str, frozenset[str]], settings: Settings
) -> Iterator[tuple[str, Symbol]]:
    """The symbols of a renamed neighbour by name. `entered` are the functions of the target that decorators enter in one."""
    for name in definitions:
        role, main = definitions.role(name), definitions.main_name(name)
        uses, own = definitions.uses(name) | definitions.registered(name), entered.get(name, frozenset())
        yield name, Symbol(main, dotted, role, uses, _is_overriding(main, role, False, settings), own)


def _own_symbol(statement: Statement, entered: frozenset[str], settings: Settings) -> Symbol:
    is_none = statement.text.rpartition("=")[2].strip() == "None"
    overriding = _is_overriding(statement.name, statement.role, is_none, settings)
    return Symbol(statement.name, OWN, statement.role, statement.uses | entered, overriding)


def _is_overriding(name: str, role: Role, is_none: bool, settings: Settings) -> bool:
    """Whether a definition of the target replaces the definition of that name in the parent's module."""
    if role is not Role.ASSIGNMENT:
        return True
    if any(part in name for part in settings.overriding_unless_none):
        return not is_none
    return any(part in name for part in settings.overriding_assignments)
