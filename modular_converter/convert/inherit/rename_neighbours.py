"""Rename everything that comes from a neighbour to its name in the target.

The prefix that replaces the neighbour's name is usually the target model's own cased name. `class EmuTextMLP(LlamaMLP)` in
model `emu` says that what comes from llama is called `EmuText…`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from modular_converter.convert.inherit.foreign_names import foreign_names
from modular_converter.convert.inherit.resolve import ModularFile, Neighbour, ResolvedImports, is_sibling
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.names import ModelNames, common_suffix
from modular_converter.convert.source.rename import (
    RenamedModule,
    Renamer,
    absolute_imports,
    absolute_module,
    rename_globals,
)
from modular_converter.findings import ConversionError, Location
from modular_converter.model.module import ImportedName, Module, Role, Statement
from modular_converter.rules import input_files
from modular_converter.settings.layout import models_folder_of


@dataclass(frozen=True)
class Prefix:
    """The prefix chosen for one neighbour, and why."""

    cased: str
    """`EmuText`."""
    asked: tuple[str, ...]
    """The prefixes that the classes ask for, most wanted first."""
    collides_with: str = ""
    """The neighbour's class with which the wanted prefix would collide, if this has decided."""


def asked_prefix(child: str, parent: str, own: str, neighbour: str) -> str | None:
    """The prefix that `class child(parent)` asks for; None if the two names do not tell.

    Args:
        own: the target model's cased name.
        neighbour: the neighbour's cased name.
    """
    if child == parent:
        return None
    suffix = common_suffix(child, parent)
    if suffix[:1].isupper() and suffix not in (child, parent):
        left = child[: len(child) - len(suffix)]
        return own if len(left) < len(own) and own in child else left
    return own + neighbour if child == own + parent else own


def choose_prefix(
    children: Iterable[tuple[str, str]], own: str, neighbour: str, neighbour_classes: Sequence[str]
) -> Prefix:
    """Choose the prefix for one neighbour.

    The most asked for wins; on a tie the model's own name with the neighbour's behind it (`EmuLlama`), then the model's
    own, else the one asked for last. A prefix that only adds to the
    model's own (`EmuText` = `Emu` + `Text`) falls back to the own one where the neighbour tells such classes apart
    already (it has a `LlamaText…`): its own distinction would be lost.

    Args:
        children: `(child, parent)` for each class that inherits from the neighbour, in order.
        neighbour_classes: the names of the neighbour's classes, not renamed.
    """
    asked = [prefix for child, parent in children if (prefix := asked_prefix(child, parent, own, neighbour))]
    if not asked:
        return Prefix(own, ())
    counts = Counter(asked)
    ranked = tuple(sorted(counts, key=lambda prefix: (-counts[prefix], asked.index(prefix))))
    most = [prefix for prefix in asked if counts[prefix] == counts[ranked[0]]]
    chosen = next((prefix for prefix in (own + neighbour, own) if prefix in most), most[-1])
    if chosen != own and chosen.startswith(own):
        taken = neighbour + chosen[len(own) :]
        for name in neighbour_classes:
            if name.startswith(taken):
                return Prefix(own, ranked, name)
    return Prefix(chosen, ranked)


@dataclass(frozen=True)
class RenamedNeighbour:
    """A neighbour whose definitions carry the names that they have in the target."""

    neighbour: Neighbour
    prefix: Prefix
    definitions: RenamedModule
    sibling_renamer: Renamer
    """Renames to the target model's own name, whatever the prefix: for modules of the target's own folder."""

    @property
    def free_prefix(self) -> str:
        """A prefix that no other model's copies can have: `EmuLlama`, for which `class EmuLlamaMLP(LlamaMLP)` asks."""
        return self.sibling_renamer.new_cased + self.sibling_renamer.old_cased

    def import_in_target(self, name: ImportedName) -> ImportedName:
        """An import of the neighbour as the target has it."""
        found = self._imports.get(name)
        if found is None:
            found = self._imports[name] = self._import_in_target(name)
        return found

    @cached_property
    def _imports(self) -> dict[ImportedName, ImportedName]:
        """The imports so far: most are asked for several times."""
        return {}

    def _import_in_target(self, name: ImportedName) -> ImportedName:
        renamer = self.definitions.renamer
        module = name.module
        if name.is_relative and not self.neighbour.package:
            module = self.sibling_renamer.module(module)
        elif name.is_relative and is_sibling(module):
            return ImportedName(self.sibling_renamer.name(module), renamer.name(name.name), renamer.name(name.asname))
        elif name.is_relative:
            return replace(name, module=absolute_module(module, self.neighbour.package))
        return ImportedName(module, renamer.name(name.name), renamer.name(name.asname))

    def text_in_target(self, text: str) -> str:
        """The text of a protected import of the neighbour as the target has it."""
        text = self.sibling_renamer.import_modules(text)
        if self.neighbour.package:
            text = absolute_imports(text, self.neighbour.package)
        return self.definitions.renamer.code(text, keep_modules=True)


@dataclass(frozen=True)
class Clash:
    """A function or constant that the modular file imports, and whose new name is already taken."""

    name: str
    """Its name in the modular file."""
    new: str
    neighbour: str
    user: str
    """The definition of the modular file that uses it."""


@dataclass(frozen=True)
class Neighbourhood:
    """A target with its neighbours, renamed."""

    resolution: ResolvedImports
    neighbours: Mapping[str, RenamedNeighbour]
    """By `Neighbour.dotted`, in the order of the imports."""
    clashes: tuple[Clash, ...] = ()

    @property
    def target(self) -> ModularFile:
        """The modular file."""
        return self.resolution.target

    @cached_property
    def at_path(self) -> Mapping[str, str]:
        """Path of a neighbour -> its module name in the modular file; the first if there are two."""
        return {one.neighbour.path: dotted for dotted, one in reversed([*self.neighbours.items()])}

    @cached_property
    def taken(self) -> Mapping[str, tuple[str, str]]:
        """Name in the modular file -> the neighbour that it comes from and its new name."""
        return {
            bound: (taken.neighbour, self.neighbours[taken.neighbour].definitions.renamer.name(taken.name))
            for bound, taken in self.resolution.taken.items()
        }

    def parent_of(self, statement: Statement) -> tuple[str, str, str] | None:
        """For a class with a neighbour parent: the base as written, the neighbour, the parent's new name."""
        base = self.resolution.parent(statement)
        return (base, *self.taken[base]) if base else None

    @cached_property
    def classes(self) -> Mapping[str, Statement]:
        """The classes of the modular file by name; of two with the same name the last counts, at the place of the
        first.
        """
        statements = self.target.module.statements
        return {statement.name: statement for statement in statements if statement.role is Role.CLASS}


def rename_neighbours(resolution: ResolvedImports, library: Library) -> Neighbourhood:
    """Choose a prefix for each neighbour and rename it."""
    target, settings = resolution.target, library.settings
    children = _children(resolution)
    renamed: dict[str, RenamedNeighbour] = {}
    for dotted, neighbour in resolution.neighbours.items():
        neighbour_names = _names_around(neighbour, target.names, library)
        prefix = _prefix(neighbour, children.get(dotted, ()), target, neighbour_names)
        own = Renamer(neighbour.model, neighbour_names.cased(neighbour.model), target.model, target.cased)
        own = replace(own, kept=settings.kept_names, copy_comment=settings.copy_comment, models=settings.models_names)
        foreign = foreign_names(neighbour, _renamer(own, prefix, target), target, library)
        name_alone = {word for word in foreign.members if word.lower() == neighbour.model}
        kept = (*settings.kept_names, *sorted(foreign.members - name_alone))
        own = replace(own, kept=kept, foreign=foreign.names, members=frozenset(name_alone))
        definitions = RenamedModule(_portable(neighbour), _renamer(own, prefix, target))
        renamed[dotted] = RenamedNeighbour(neighbour, prefix, definitions, own)
    return _with_new_names(Neighbourhood(resolution, renamed))


def _with_new_names(neighbours: Neighbourhood) -> Neighbourhood:
    """Rename the functions and assignments that the modular file imports in its own code. `llama_helper` of llama
    becomes `gemma_helper` in gemma; an `as` name has no import left that binds it.
    """
    renames = {
        bound: new
        for bound, (dotted, new) in neighbours.taken.items()
        if bound != new
        and new in (definitions := neighbours.neighbours[dotted].definitions)
        and definitions.role(new) is not Role.CLASS
    }
    if not renames:
        return neighbours
    resolution = neighbours.resolution
    module = resolution.target.module
    statements = tuple(
        statement if statement.imports else _with_new_globals(statement, renames, resolution.target)
        for statement in module.statements
    )
    target = replace(resolution.target, module=replace(module, statements=statements))
    clashes = tuple(_clashes(neighbours, renames))
    return replace(neighbours, resolution=replace(resolution, target=target), clashes=clashes)


def _clashes(neighbours: Neighbourhood, renames: Mapping[str, str]) -> Iterator[Clash]:
    """The imported names that share their new name with another import, or with a definition of the modular file."""
    module = neighbours.target.module
    owners = Counter(new for _, new in set(neighbours.taken.values())) + Counter(module.definitions.keys())
    for statement in module.statements:
        for bound in sorted(renames.keys() & statement.uses) if not statement.imports else ():
            dotted, new = neighbours.taken[bound]
            if owners[new] > 1:
                yield Clash(bound, new, dotted, statement.name)


def _with_new_globals(statement: Statement, renames: Mapping[str, str], target: ModularFile) -> Statement:
    try:
        return replace(statement, text=rename_globals(statement.text, renames))
    except SyntaxError as error:
        place = Location(target.path, statement.line)
        raise ConversionError(input_files.syntax_error(place, f"{error.msg}, as libcst reads it")) from None


def _names_around(neighbour: Neighbour, names: ModelNames, library: Library) -> ModelNames:
    names = library.names(models_folder_of(neighbour.path, library.settings)) if neighbour.package else names
    return names.with_written(neighbour.model, neighbour.module.classes)


def _children(resolution: ResolvedImports) -> dict[str, list[tuple[str, str]]]:
    """Neighbour -> the classes of the modular file that inherit from its classes, each with the parent."""
    found: dict[str, list[tuple[str, str]]] = {}
    for statement in resolution.target.module.statements:
        for base in statement.bases if statement.role is Role.CLASS else ():
            definition = resolution.definition(base) if base in resolution.taken else None
            if definition is not None and definition.role is Role.CLASS:
                asked = resolution.taken[base]
                is_theirs = base in resolution.neighbours[asked.neighbour].module.names
                found.setdefault(asked.neighbour, []).append((statement.name, base if is_theirs else asked.name))
    return found


def _prefix(
    neighbour: Neighbour, children: Sequence[tuple[str, str]], target: ModularFile, names: ModelNames
) -> Prefix:
    return choose_prefix(children, target.cased, names.cased(neighbour.model), neighbour.module.classes)


def _renamer(own: Renamer, prefix: Prefix, target: ModularFile) -> Renamer:
    """The renamer to the prefix. It is made from the prefix's lowercase form, which occurs in strings."""
    if prefix.cased == target.cased:
        return own
    lowercase = target.names.lowercase(prefix.cased)
    return replace(own, new=lowercase, new_cased=target.names.cased(lowercase), siblings=own)


def _portable(neighbour: Neighbour) -> Module:
    """The neighbour's module; of another package, with absolute imports inside its definitions."""
    if not neighbour.package:
        return neighbour.module
    statements = tuple(
        replace(statement, text=absolute_imports(statement.text, neighbour.package))
        if not statement.imports
        else statement
        for statement in neighbour.module.statements
    )
    return replace(neighbour.module, statements=statements)
