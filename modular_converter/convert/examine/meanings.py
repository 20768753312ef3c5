"""Whether each name in generated code has the meaning that it had where the code was written.

A generated file has one name space. The code in it comes from several: the modular file and each neighbour. If two of
them give one name two meanings, only one reaches the file, and code of the other source behaves differently.

The same befalls two models in one file: with `class NewMLP(OldMLP)` and `class NewTower(OtherTower)`, the copy of
`OtherMLP` would be called `NewMLP` as well. The author's class wins, which may be intended. It is an accident if the code
that uses it is only copied, and code of the first model uses the class, too.
"""

from __future__ import annotations

import ast
import builtins
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import NamedTuple

from modular_converter.convert.examine.faults import globals_read, same_code
from modular_converter.convert.examine.finished import FinishedConversion
from modular_converter.convert.inherit.build import BuiltClass
from modular_converter.convert.inline.collect import GeneratedFile
from modular_converter.convert.inline.needed import OWN
from modular_converter.facts import GeneratedDefinition
from modular_converter.findings import Finding
from modular_converter.model import lexer
from modular_converter.model.class_blocks import ClassSpan, block_lines
from modular_converter.model.module import POSTPONED, ImportedName, Role, Statement, has_postponed
from modular_converter.model.nodes import parse, walk
from modular_converter.model.resolver import Definition
from modular_converter.rules.members_of_both import AS_WRITTEN, read_annotations
from modular_converter.settings.values import Settings


BUILTINS = frozenset(name for name in dir(builtins) if name.islower())


class Meaning(NamedTuple):
    """The meaning of a name: a definition in a source, or an import."""

    source: str
    """`OWN` for the modular file, else the neighbour as the modular file names it."""
    statement: Statement | None = None
    """The definition, renamed; None for an import."""
    imported: str = ""
    """The dotted name of the imported object."""
    module: str = ""
    """The module that it is imported from."""

    def __str__(self) -> str:
        if self.imported:
            return f"`{self.imported}`"
        return f"`{self.source}`" if self.source else "the modular file"

    @property
    def is_sibling(self) -> bool:
        """Whether it is imported from another file of the same model, which this run may generate."""
        return self.imported.startswith(".") and not self.imported.startswith("..")


def builtin(name: str) -> Meaning | None:
    """The meaning of a name that Python itself binds."""
    return Meaning("", None, f"builtins.{name}", "builtins") if name in BUILTINS else None


def imported(name: ImportedName | None) -> Meaning | None:
    if name is None:
        return None
    return Meaning("", None, name.dotted, name.module if name.name or name.asname else name.bound)


def is_replacement(wanted: Meaning, found: Meaning, settings: Settings, is_import: bool) -> bool:
    """Whether the modular file replaces a neighbour's definition on purpose; an assignment only under certain names.

    A function or class replaces what the neighbour imports, if that is no module.
    """
    if found.source != OWN or found.statement is None:
        return False
    if is_import and (found.statement.role is Role.ASSIGNMENT or wanted.imported == wanted.module):
        return False
    if wanted.statement is not None and wanted.statement.role is found.statement.role is Role.ASSIGNMENT:
        parts = (*settings.overriding_assignments, *settings.overriding_unless_none)
        return wanted.source != OWN and any(part in found.statement.name for part in parts)
    return (wanted.statement is None or wanted.source != OWN) and wanted.module != "builtins"


_READS_ANNOTATIONS = re.compile(rf"\b(?:{'|'.join(AS_WRITTEN)}|(?<=\.)annotation)\b")


def report_read_annotations(finished: FinishedConversion, texts: Mapping[str, str]) -> Iterator[Finding]:
    """One warning for each file in which code reads annotations that are texts in the file where they were written alone, or in
    the generated one alone. `texts` are those of the generated files by name.
    """
    for file in finished.files:
        is_postponed = POSTPONED in texts[file.name]
        reading = [one for one in file.ordered if _reads_annotations(one.text)]
        for source, text in (part for one in file.ordered if reading for part in _parts(one, finished)):
            module = finished.renamed[source].neighbour.module if source else finished.target.module
            if has_postponed(module) is not is_postponed and _has_annotations(text):
                reader = reading[0]
                yield read_annotations(
                    finished.place_of(reader), reader.name, os.path.basename(module.path), is_postponed=is_postponed
                )
                break


def _reads_annotations(text: str) -> bool:
    is_of_fields = ".type" in text and "fields(" in text
    return is_of_fields or _READS_ANNOTATIONS.search(text) is not None


def _parts(definition: GeneratedDefinition, finished: FinishedConversion) -> Iterator[tuple[str, str]]:
    """The sources that a generated definition comes from, each with its text."""
    built = finished.merged(definition)
    if built is None or built.parent is None:
        yield finished.copied_from(definition), definition.text
    else:
        yield from ((OWN, built.statement.text), (built.neighbour, built.parent.text))


def _has_annotations(text: str) -> bool:
    return any(getattr(node, name, None) for node in walk(parse(text)) for name in ("annotation", "returns"))


class Change(NamedTuple):
    """A name that has another meaning in generated code than where the code was written."""

    name: str
    user: GeneratedDefinition
    """The definition whose code uses the name."""
    wanted: Meaning
    found: Meaning


def find_changes(finished: FinishedConversion) -> Iterator[Change]:
    """The names of all generated files that have changed their meaning, in order.

    A class or function of the modular file that replaces a neighbour's of the same name is intended and not reported.
    """
    names = _Names(finished)
    for file in finished.files:
        yield from names.clashing(file)
        yield from names.displaced_classes(file)
        shadowed = BUILTINS & (file.definitions.keys() | names.everything)
        for definition in finished.ordered[file.kind]:
            yield from names.displaced(definition)
            yield from names.changed(definition, file, shadowed)


@dataclass(frozen=True)
class _Names:
    """The name spaces of the modular file and its neighbours, under the names of the generated files."""

    finished: FinishedConversion
    compared: dict[tuple[str, str, str], bool] = field(default_factory=dict)
    """Name and two sources -> whether both definitions have the same code."""

    def changed(
        self, definition: GeneratedDefinition, file: GeneratedFile, shadowed: frozenset[str]
    ) -> Iterator[Change]:
        """The names that have another meaning for a definition of a generated file than where its code was written. Of a
        merged class those in the child's code, in the rest of the parent's, and then those that both use.

        Args:
            shadowed: the builtins that some source binds anew.
        """
        read, built = partial(globals_read, definition.text), self.finished.merged(definition)
        parts: list[tuple[str, frozenset[str], Callable[[], frozenset[str]]]]
        if built is None or built.parent is None:
            parts = [(self.finished.copied_from(definition), definition.uses, read)]
        else:
            own, theirs, source = built.statement.uses, built.parent.uses, built.neighbour
            read_by_parent = partial(parents_globals, built.statement.text, built.plan)
            parts = [(OWN, own, read), (source, theirs - own, read), (source, own & theirs, read_by_parent)]
        for source, uses, globals_of_part in parts:
            for name in sorted(uses & definition.uses & (self.bound[source] | shadowed)):
                change = self._change(name, source, definition, file)
                if change is not None and name in globals_of_part():
                    yield change

    def _change(self, name: str, source: str, user: GeneratedDefinition, file: GeneratedFile) -> Change | None:
        """The change of meaning of a name that code from `source` uses; None if its meaning is the same."""
        wanted = self.meaning(name, source)
        if wanted is None:
            return None
        found = self._found(name, user, file)
        # A neighbour may import an object under a name that renaming leaves as it is.
        is_import = source != OWN and name in self.finished.renamed[source].neighbour.module.imported
        if found is None or is_replacement(wanted, found, self.finished.library.settings, is_import):
            return None
        if wanted.source == found.source and wanted.imported == found.imported:
            return None
        if wanted.imported and (wanted.is_sibling or found.imported and self._is_one_object(wanted, found)):
            return None
        return None if self.does_the_same(wanted, found) else Change(name, user, wanted, found)

    def does_the_same(self, wanted: Meaning, found: Meaning) -> bool:
        """Whether two definitions have the same code, and the globals in it the same meanings."""
        first, second = wanted.statement, found.statement
        if first is second:
            return self._is_one_object(wanted, found)
        if first is None or second is None:  # a package hands on what the neighbour defines
            return self._place(wanted) == self._place(found) is not None
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
        one, heir = self.meaning(name, wanted), self.finished.heirs.get(name)
        is_heir = heir is not None and heir.source == found
        other = _generated(self.finished.classes[name]) if is_heir else self.meaning(name, found)
        return one is not None and other is not None and not self.does_the_same(one, other)

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

    def _place(self, meaning: Meaning) -> Definition | None:
        if meaning.statement is not None:
            renamed, name = self.finished.renamed.get(meaning.source), meaning.statement.name
            if renamed is None or name not in renamed.definitions:
                return None
            return Definition(renamed.neighbour.path, renamed.definitions.original(name).name)
        name = meaning.imported[len(meaning.module) :].removeprefix(".")
        for file in self.finished.files:  # that it copies to a file beside this one
            copied = file.definitions.get(name) if f".{file.name}" == f"{meaning.module}.py" else None
            if copied is not None and (source := self.finished.copied_from(copied)) != OWN:
                renamed = self.finished.renamed[source]
                return Definition(renamed.neighbour.path, renamed.definitions.original(name).name)
        return self.finished.library.resolver.definition(
            meaning.module, name, os.path.dirname(self.finished.target.path)
        )

    def _package_and_leaf(self, imported: str) -> tuple[str, str]:
        package = self.finished.library.settings.package if imported.startswith(".") else imported.partition(".")[0]
        return package, imported.rpartition(".")[2]

    def displaced(self, definition: GeneratedDefinition) -> Iterator[Change]:
        """The modular file's own definitions that a neighbour's of the same name keeps out of a generated file.

        A statement that changes an imported object does not count here: see `report_lost_statements`.
        """
        source = self.finished.copied_from(definition)
        if source == OWN:
            return
        binds = self.finished.renamed[source].definitions[definition.name].binds
        for name in sorted(binds | {definition.name}):
            own = self.finished.target.module.definitions.get(name)
            if own is not None and not own.is_store and not same_code(own.text, definition.text):
                yield Change(name, definition, Meaning(OWN, own), Meaning(source, _statement(definition)))

    def displaced_classes(self, file: GeneratedFile) -> Iterator[Change]:
        """The classes of the modular file that copied code of another model than their parent's would use."""
        heirs = self.finished.heirs
        for user in self.finished.ordered[file.kind]:
            source = self.finished.copied_from(user)
            if source == OWN:
                continue
            definitions = self.finished.renamed[source].definitions
            for name in sorted(user.uses & heirs.keys() & file.definitions.keys() - {user.name}):
                model = self._model(heirs[name].source)
                if name not in definitions or definitions.role(name) is not Role.CLASS or model == self._model(source):
                    continue
                wanted, found = Meaning(source, definitions[name]), _generated(self.finished.classes[name])
                if self._serves(name, model, file) and not self.does_the_same(wanted, found):
                    yield Change(name, user, wanted, found._replace(source=OWN))

    def _serves(self, name: str, model: str, file: GeneratedFile) -> bool:
        """Whether other code that comes from a model uses a class: copied code, or a class with its parent there."""
        users = (one for one in self.finished.ordered[file.kind] if name in one.uses and one.name != name)
        return any(self._model(self.finished.source_of(one)) == model for one in users)

    def _model(self, source: str) -> str:
        return self.finished.renamed[source].neighbour.model if source else ""

    def clashing(self, file: GeneratedFile) -> Iterator[Change]:
        """Imports of the modular file whose new names belong to other code in a generated file."""
        for clash in self.finished.neighbours.clashes:
            user, wanted = file.definitions.get(clash.user), self.meaning(clash.new, clash.neighbour)
            found = self._found(clash.new, user, file) if user is not None else None
            if user is None or wanted is None or found is None or wanted.source == found.source:
                continue
            if not self.does_the_same(wanted, found):
                yield Change(clash.name, user, wanted, found)

    def meaning(self, name: str, source: str) -> Meaning | None:
        """The meaning of a name in a source; None if neither the source's top level nor Python itself binds it."""
        if source == OWN:
            if name in self.finished.neighbours.taken:
                dotted, new = self.finished.neighbours.taken[name]
                return self.meaning(new, dotted)
            own = self.finished.target.module
            if own.is_made(name):
                return Meaning(OWN, own.definitions[name])
            return imported(own.imported.get(name)) or builtin(name)
        renamed = self.finished.renamed[source]
        if renamed.definitions.is_made(name):
            return Meaning(source, renamed.definitions[name])
        return imported(self._imports[source].get(name)) or builtin(name)

    @cached_property
    def bound(self) -> Mapping[str, frozenset[str]]:
        """The names that stand for something at the top level of each source."""
        own, others = self.finished.target.module, self.finished.renamed
        bound = {dotted: frozenset({*one.definitions, *self._imports[dotted]}) for dotted, one in others.items()}
        return {OWN: frozenset({*self.finished.neighbours.taken, *own.definitions, *own.imported}), **bound}

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
            for dotted, renamed in self.finished.renamed.items()
        }

    def _found(self, name: str, user: GeneratedDefinition, file: GeneratedFile) -> Meaning | None:
        """The meaning of a name for a definition of a generated file; None for a definition of another generated file."""
        definition = self._binder(name, user, file)
        inner = next((one for one in definition.inner_imports if one.bound == name), None) if definition else None
        if inner is not None:
            return imported(inner)
        if definition is not None:
            return Meaning(self.finished.copied_from(definition), _statement(definition))
        if name in file.other_kinds:
            return None
        imports = [(OWN, self.finished.target.module.imported), *self._imports.items()]
        for source, bound in imports:
            if name in bound and not (source == OWN and name in self.finished.neighbours.taken):
                return imported(bound[name])
        return None

    def _binder(self, name: str, user: GeneratedDefinition, file: GeneratedFile) -> GeneratedDefinition | None:
        """The definition of a generated file that binds a name for another, perhaps beside others: `LOW, HIGH = 1, 2`.

        Of several the last one counts, and for what is read at once the last one above it.
        """
        own = self.finished.target.module.definitions
        named = {OWN: own[name].name} if name in own else {}
        for source, renamed in self.finished.renamed.items():
            if name in renamed.definitions:
                named[source] = renamed.definitions.main_name(name)
        mains = ((source, file.definitions.get(main)) for source, main in named.items())
        binders = [one for source, one in mains if one and self.finished.copied_from(one) == source]
        if name in file.definitions and file.definitions[name] not in binders:
            binders.append(file.definitions[name])
        if len(binders) < 2:
            return binders[0] if binders else None
        turn = {one.name: place for place, one in enumerate(self.finished.ordered[file.kind])}
        binders.sort(key=lambda one: turn[one.name])
        above = [one for one in binders if turn[one.name] < turn[user.name]] if name in user.bindings.needs else []
        return (above or binders)[-1]


def _statement(definition: GeneratedDefinition) -> Statement:
    return Statement(definition.role, definition.name, definition.text, definition.origin.line)


def parents_globals(child_text: str, plan: Sequence[ClassSpan]) -> frozenset[str]:
    """The globals that the parent's code reads in a class merged by this plan: those in its lines, and in lines made of
    both classes' those that the child's do not have.
    """
    text = "".join(span.text for span in plan)
    names: dict[int, set[str]] = {}
    for node in walk(parse(text)):
        if isinstance(node, ast.Name):
            names.setdefault(node.lineno, set()).add(node.id)
    rows = block_lines(child_text)[1]
    found: set[str] = set()
    line = 1
    for span in plan:
        end = line + span.text.count("\n")
        if not all(source.is_own for source in span.sources):
            own = ("".join(rows[source.first - 1 : source.last]) for source in span.sources if source.is_own)
            read = set[str]().union(*(names.get(number, ()) for number in range(line, end)))
            found |= read.difference(*map(lexer.identifiers, own))
        line = end
    return globals_read(text) & found


def _generated(built: BuiltClass) -> Meaning:
    """An heir of a neighbour's class as the meaning of its name there."""
    return Meaning(built.neighbour, Statement(Role.CLASS, built.name, built.text, built.statement.line))
