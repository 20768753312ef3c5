"""Whether each name in generated code has the meaning that it had where the code was written.

A generated file has one name space. The code in it comes from several: the modular file and each neighbour. If two of
them give one name two meanings, only one reaches the file, and code of the other source behaves differently.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from modular_converter.convert.examine.code import globals_read, same_code
from modular_converter.convert.examine.left_of_parent import left_of_parent
from modular_converter.convert.examine.meaning import BUILTINS, Meaning, builtin, imported, is_replacement
from modular_converter.convert.inherit.build import BuiltClass
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood
from modular_converter.convert.inline.generated import EmittedDefinition, GeneratedFile, GeneratedFiles
from modular_converter.convert.inline.needed import OWN
from modular_converter.convert.source.library import Library
from modular_converter.model.module import ImportedName, Statement
from modular_converter.model.resolver import Definition


class Change(NamedTuple):
    """A name that has another meaning in generated code than where the code was written."""

    name: str
    user: EmittedDefinition
    """The definition whose code uses the name."""
    wanted: Meaning
    found: Meaning


def find_changes(
    neighbours: Neighbourhood, classes: Mapping[str, BuiltClass], files: GeneratedFiles, library: Library
) -> Iterator[Change]:
    """The names of all generated files that have changed their meaning, in order.

    A class or function of the modular file that replaces a neighbour's of the same name is intended and not reported.
    """
    names = _Names(neighbours, library)
    for file in files.files:
        yield from names.clashing(file)
        shadowed = BUILTINS & (file.definitions.keys() | names.everything)
        for definition in file.ordered:
            yield from names.displaced(definition)
            for source, uses in _sources(definition, names, classes):
                read = uses & definition.uses
                for name in sorted(read & names.bound[source] | (read & shadowed)):
                    change = names.change(name, source, definition, file)
                    if change is not None and name in globals_read(definition.text):
                        yield change
            yield from _shared_changes(definition, names, classes.get(definition.name), file, shadowed)


def _shared_changes(
    definition: EmittedDefinition,
    names: _Names,
    built: BuiltClass | None,
    file: GeneratedFile,
    shadowed: frozenset[str],
) -> Iterator[Change]:
    """The changed names that a merged class uses in the child's code and in the rest of the parent's code.

    Args:
        shadowed: the builtins that some source binds anew.
    """
    if built is None or built.parent is None or definition.origin.how != "merged":
        return
    bound = names.bound[built.neighbour] | shadowed
    for name in sorted(built.parent.uses & built.statement.uses & definition.uses & bound):
        change = names.change(name, built.neighbour, definition, file)
        if change is not None and name in left_of_parent(
            built.statement.text, built.parent.text, built.pieces, built.added
        ):
            yield change


def origin_of(definition: EmittedDefinition, neighbours: Neighbourhood) -> str:
    """The neighbour that a definition is copied from; `OWN` for a definition that the author wrote or merged."""
    if definition.origin.how != "copied":
        return OWN
    return neighbours.at_path.get(definition.origin.path, OWN)


def _sources(
    definition: EmittedDefinition, names: _Names, classes: Mapping[str, BuiltClass]
) -> Iterator[tuple[str, frozenset[str]]]:
    """Where the code of a definition comes from, each with the names that it uses there."""
    built = classes.get(definition.name)
    if built is not None and built.parent is not None and definition.origin.how == "merged":
        yield OWN, built.statement.uses
        yield built.neighbour, built.parent.uses - built.statement.uses
    else:
        yield origin_of(definition, names.neighbours), definition.uses


@dataclass(frozen=True)
class _Names:
    """The name spaces of the modular file and its neighbours, under the names of the generated files."""

    neighbours: Neighbourhood
    library: Library
    compared: dict[tuple[str, str, str], bool] = field(default_factory=dict)
    """Name and two sources -> whether both definitions have the same code."""

    def change(self, name: str, source: str, user: EmittedDefinition, file: GeneratedFile) -> Change | None:
        """The change of meaning of a name that code from `source` uses; None if its meaning is the same."""
        wanted = self.meaning(name, source)
        if wanted is None:
            return None
        found = self._found(name, file)
        if found is None or is_replacement(wanted, found, self.library.settings, self._is_import(name, source)):
            return None
        if wanted.source == found.source and wanted.imported == found.imported:
            return None
        if wanted.imported and (wanted.is_sibling or found.imported and self._is_one_object(wanted, found)):
            return None
        return None if self._does_the_same(wanted, found) else Change(name, user, wanted, found)

    def _does_the_same(self, wanted: Meaning, found: Meaning) -> bool:
        """Whether two definitions have the same code, and the globals in it the same meanings."""
        first, second = wanted.statement, found.statement
        if first is None or second is None:
            return first is second and self._is_one_object(wanted, found)
        key = first.name, wanted.source, found.source
        if key not in self.compared:
            self.compared[key] = True  # for definitions that use each other
            shared = first.uses & second.uses & self.bound[wanted.source] & self.bound[found.source]
            self.compared[key] = same_code(first.text, second.text) and not any(
                self._differs(name, wanted.source, found.source) and name in globals_read(first.text)
                for name in sorted(shared - {first.name})
            )
        return self.compared[key]

    def _differs(self, name: str, wanted: str, found: str) -> bool:
        one, other = self.meaning(name, wanted), self.meaning(name, found)
        return one is not None and other is not None and not self._does_the_same(one, other)

    def _is_one_object(self, one: Meaning, other: Meaning) -> bool:
        """Whether two imports bind the same object: a package hands on the names of its modules (`utils.generic`).

        If one of them cannot be followed, the last name within one package decides.
        """
        if (one.module, one.imported) == (other.module, other.imported):
            return True  # without reading the modules that lead there, a tenth of converting one model
        first, second = self._place(one), self._place(other)
        if first is not None and second is not None:
            return first == second
        return self._package_and_leaf(one.imported) == self._package_and_leaf(other.imported)

    def _is_import(self, name: str, source: str) -> bool:
        """Whether a neighbour imports an object under a name that renaming leaves as it is."""
        return source != OWN and name in self.neighbours.neighbours[source].neighbour.module.imported

    def _place(self, meaning: Meaning) -> Definition | None:
        name = meaning.imported[len(meaning.module) :].removeprefix(".")
        return self.library.resolver.definition(meaning.module, name, os.path.dirname(self.neighbours.target.path))

    def _package_and_leaf(self, imported: str) -> tuple[str, str]:
        package = self.library.settings.package if imported.startswith(".") else imported.partition(".")[0]
        return package, imported.rpartition(".")[2]

    def displaced(self, definition: EmittedDefinition) -> Iterator[Change]:
        """The modular file's own definition that a neighbour's of the same name keeps out of a generated file.

        A statement that changes an imported object does not count here: see `report_lost_statements`.
        """
        own = self.neighbours.target.module.definitions.get(definition.name)
        if own is None or own.is_store or definition.origin.how != "copied" or same_code(own.text, definition.text):
            return
        found = Meaning(origin_of(definition, self.neighbours), _statement(definition))
        if found.source != OWN:
            yield Change(definition.name, definition, Meaning(OWN, own), found)

    def clashing(self, file: GeneratedFile) -> Iterator[Change]:
        """Imports of the modular file whose new names belong to other code in a generated file."""
        for clash in self.neighbours.clashes:
            user, wanted = file.definitions.get(clash.user), self.meaning(clash.new, clash.neighbour)
            found = self._found(clash.new, file)
            if user is None or wanted is None or found is None or wanted.source == found.source:
                continue
            if not self._does_the_same(wanted, found):
                yield Change(clash.name, user, wanted, found)

    def meaning(self, name: str, source: str) -> Meaning | None:
        """The meaning of a name in a source; None if neither the source's top level nor Python itself binds it."""
        if source == OWN:
            if name in self.neighbours.taken:
                dotted, new = self.neighbours.taken[name]
                return self.meaning(new, dotted)
            own = self.neighbours.target.module
            if own.is_made(name):
                return Meaning(OWN, own.definitions[name])
            return imported(own.imported.get(name)) or builtin(name)
        renamed = self.neighbours.neighbours[source]
        if renamed.definitions.is_made(name):
            return Meaning(source, renamed.definitions[name])
        return imported(self._imports[source].get(name)) or builtin(name)

    @cached_property
    def bound(self) -> Mapping[str, frozenset[str]]:
        """The names that stand for something at the top level of each source."""
        own, others = self.neighbours.target.module, self.neighbours.neighbours
        bound = {dotted: frozenset({*one.definitions, *self._imports[dotted]}) for dotted, one in others.items()}
        return {OWN: frozenset({*self.neighbours.taken, *own.definitions, *own.imported}), **bound}

    @cached_property
    def everything(self) -> frozenset[str]:
        """The names that stand for something in any source."""
        return frozenset[str]().union(*self.bound.values())

    @cached_property
    def _imports(self) -> Mapping[str, Mapping[str, ImportedName]]:
        return {
            dotted: {
                name.bound: name for name in map(renamed.import_in_target, renamed.neighbour.module.imported.values())
            }
            for dotted, renamed in self.neighbours.neighbours.items()
        }

    def _found(self, name: str, file: GeneratedFile) -> Meaning | None:
        """The meaning of a name in a generated file; None for a definition of another generated file."""
        definition = file.definitions.get(name)
        inner = next((one for one in definition.inner_imports if one.bound == name), None) if definition else None
        if inner is not None:
            return imported(inner)
        if definition is not None:
            return Meaning(origin_of(definition, self.neighbours), _statement(definition))
        if name in file.other_kinds:
            return None
        imports = [(OWN, self.neighbours.target.module.imported), *self._imports.items()]
        for source, bound in imports:
            if name in bound and not (source == OWN and name in self.neighbours.taken):
                return imported(bound[name])
        return None


def _statement(definition: EmittedDefinition) -> Statement:
    return Statement(definition.role, definition.name, definition.text, definition.origin.line)
