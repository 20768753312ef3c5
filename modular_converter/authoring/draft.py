"""A draft of a modular file: the form of each definition of the flat model, at first the shortest, and the text of the
file.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from modular_converter.authoring.flat_model import FlatFile, FlatModel
from modular_converter.authoring.sources import Placed, SourceFile, gives
from modular_converter.convert.emit.imports import names_in_annotations
from modular_converter.model import lexer
from modular_converter.model.module import POSTPONED, ImportedName, Role, Statement, exported_names, has_postponed
from modular_converter.settings.values import module_name


_UNUSED = "  # noqa: F401"
"""The comment against linters, this tool's formatter among them, which remove an import that seems unused."""


class How(enum.Enum):
    """The ways in which a modular file can have a definition, the shortest first."""

    ALONG = "comes along"
    IMPORTED = "imported"
    HEIR = "inherits"
    WRITTEN = "written out"


@dataclass(frozen=True)
class Draft:
    """The choices for a modular file."""

    flat: FlatModel
    how: Mapping[str, How]
    """Definition -> its form; without `__all__`."""
    placed: Mapping[str, Placed]
    """Class -> its parent, where it has one."""
    others: Mapping[str, tuple[Placed, ...]]
    """Class -> the parents that it could have instead."""
    imports: Mapping[str, tuple[ImportedName, ...]]
    """Function or constant -> the places it could be imported from; the first counts."""
    needed: frozenset[str] = frozenset()
    """Names of imports that the file needs although its own code does not use them."""
    guarded: frozenset[str] = frozenset()
    """Keys of imports that are written with their condition, although another file has them without one."""
    condition: str = ""
    """A further conditional import of an imported library, with the import of its test."""
    header: int = 0
    """The index of the header that is written, in `headers`."""

    def with_how(self, changes: Mapping[str, How]) -> Draft:
        """The draft with some definitions in another form."""
        return replace(self, how={**self.how, **changes})

    def imported(self, name: str, taken: ImportedName) -> Draft:
        """The draft with a function or constant imported from a certain place."""
        others = (one for one in self.imports[name] if one != taken)
        return replace(self.with_how({name: How.IMPORTED}), imports={**self.imports, name: (taken, *others)})

    def statement(self, name: str) -> Statement:
        """The definition in the flat file."""
        return self.flat.definitions[name][1]

    def piece(self, name: str) -> str:
        """The text of a definition in the modular file; "" for one that is not there."""
        how = self.how[name]
        if how is How.HEIR:
            return self.placed[name].heir.text
        return self.statement(name).text if how is How.WRITTEN else ""


def closed(draft: Draft) -> Draft:
    """The draft in which the file's own code has a definition or an import for every name that it uses."""
    while True:
        used = _used(draft)
        changes = {name: explicit(name, draft) for name, how in draft.how.items() if how is How.ALONG and name in used}
        if not changes:
            return draft
        draft = draft.with_how(changes)


def explicit(name: str, draft: Draft) -> How:
    """The form of a definition that is not copied automatically."""
    if name in draft.placed:
        return How.HEIR
    return How.IMPORTED if name in draft.imports else How.WRITTEN


def _used(draft: Draft) -> set[str]:
    """The names in the code of the file's own definitions, also in annotations that are strings."""
    return set[str]().union(*(_uses_of(draft.piece(name), draft.flat.names) for name in draft.how))


@lru_cache(maxsize=4096)
def _uses_of(piece: str, known: frozenset[str]) -> frozenset[str]:
    """The names in the code of one definition; in strings that stand for types, only names of `known` count."""
    return lexer.identifiers(piece) | names_in_annotations(piece, known)


def modular_text(draft: Draft) -> str:
    """The text of the modular file, not formatted."""
    parts = [head_text(draft)]
    names = sorted(draft.how, key=lambda name: name == "__getattr__")  # `__getattr__` stands above `__all__`
    for name in names:
        how, statement = draft.how[name], draft.statement(name)
        if how in (How.HEIR, How.WRITTEN):
            lead = statement.lead if how is How.WRITTEN else "\n\n"
            parts.append(f"{lead}{draft.piece(name)}\n")
    return "".join((*parts, _exports(draft)))


def head_text(draft: Draft) -> str:
    """The licence and the imports."""
    return "".join((headers(draft.flat)[draft.header], *_imports(draft)))


def headers(flat: FlatModel) -> list[str]:
    """The possible headers with the licence of the flat files, of which the modeling file is the last. An import
    carries the empty line above it into the generated files. With a docstring below the licence this line belongs to
    the first import; without one it belongs to the licence.
    """
    found = [file.module.header for file in flat.files]
    gaps = [len(one) - len(one.rstrip("\n")) for one in found]
    text = found[-1].rstrip("\n")
    docstring = f'"""{flat.cased} model."""\n\n'
    if not text.strip():
        return ["", docstring]
    plain = [text + "\n" * gap for gap in dict.fromkeys((gaps[-1], 1, 2))]
    documented = [f"{text}\n{docstring}", f"{text}\n\n{docstring}"]
    return [*documented, *plain] if flat.is_generated and len(set(gaps)) > 1 else [*plain, *documented]


def _exports(draft: Draft) -> str:
    """`__all__` of all files, with the fewest empty lines above it of any file. Names that are only copied get a
    comment against linters.
    """
    flat = draft.flat
    found = [one for file in flat.files if (one := file.module.definitions.get("__all__")) is not None]
    names = dict.fromkeys(name for one in found for name in exported_names(one.text))
    if not names:
        return ""
    lead = min((one.lead for one in found), key=len)
    unseen = {name for name in names if draft.how.get(name) is How.ALONG}
    if not unseen:
        return f"{lead}__all__ = [" + ", ".join(f'"{name}"' for name in names) + "]\n"
    lines = (f'    "{name}",{"  # noqa: F822" if name in unseen else ""}\n' for name in names)
    return f"{lead}__all__ = [\n{''.join(lines)}]\n"


def _imports(draft: Draft) -> Iterator[str]:
    """The import statements: those of the flat files for needed names, and those from neighbours."""
    flat = draft.flat
    if any(has_postponed(file.module) for file in flat.files):
        yield f"{POSTPONED}\n\n"
    defined = {name for name, how in draft.how.items() if how is not How.ALONG}
    used = _used(draft)
    wanted = (used | draft.needed) - defined
    statements = [one for file in flat.files for one in file.module.statements if one.imports]
    # An import that is plain in one file and protected in another is written plainly: the conversion protects it again.
    statements.sort(key=lambda one: one.role is not Role.IMPORT)
    siblings = {"." + module_name(file.kind, flat.model) for file in flat.files}
    guards = [one for one in statements if one.role is Role.PROTECTED_IMPORT]
    statements = [one for one in statements if not any(_covers(guard, one) for guard in guards)]
    for statement in guards:
        # A class of a sibling file that only an annotation names: a conversion does not see its use.
        wanted |= {name.bound for name in statement.imports if name.module in siblings} & used
        if any(name.bound in wanted for name in statement.imports):
            wanted |= statement.condition
    bound: set[str] = set()
    protected: list[str] = []
    for statement in statements:
        is_plain = statement.role is Role.IMPORT
        names = [one for one in statement.imports if one.module != "__future__"]
        names = [one for one in names if not (is_plain and (one.module in siblings or one.key in draft.guarded))]
        names = [one for one in names if one.bound in wanted and one.key not in bound]
        if not names:
            continue
        bound.update(one.key for one in names)
        if is_plain:
            seen = wanted - draft.needed | used
            yield from (f"{import_line(one)}{'' if one.bound in seen else _UNUSED}\n" for one in names)
        else:
            protected.append(f"{statement.lead}{statement.text}\n")
    yield from _from_neighbours(draft, used)
    yield from filter(None, (draft.condition,))
    yield from protected


def _covers(one: Statement, other: Statement) -> bool:
    """Whether a conditional import binds all that another one binds on the same condition, and more."""
    same_test = one.text.partition("\n")[0] == other.text.partition("\n")[0]
    return other.role is Role.PROTECTED_IMPORT and same_test and set(other.imports) < set(one.imports)


def import_line(name: ImportedName) -> str:
    """The statement that imports a name."""
    alias = f" as {name.asname}" if name.asname not in ("", name.name) else ""
    return f"from {name.module} import {name.name}{alias}" if name.name else f"import {name.module}{alias}"


def _from_neighbours(draft: Draft, used: Collection[str]) -> Iterator[str]:
    for name, how in draft.how.items():
        if how is How.HEIR:
            placed = draft.placed[name]
            module = draft.flat.module_as_written(placed.source.dotted)
            yield f"{import_line(ImportedName(module, placed.original, placed.base))}\n"
            yield from placed.heir.imported
        elif how is How.IMPORTED:
            taken = draft.imports[name][0]
            module = draft.flat.module_as_written(taken.module)
            yield f"{import_line(ImportedName(module, taken.name, name))}{'' if name in used else _UNUSED}\n"


def definitions_of(files: Iterable[FlatFile]) -> Iterator[str]:
    """The names of all definitions in the order of the files, without `__all__`."""
    seen: set[str] = set()
    for file in files:
        for name in file.module.definitions:
            if name != "__all__" and name not in seen:
                seen.add(name)
                yield name


MOST_ORIGINS = 4
"""The most places that are tried for the import of one function."""


def first_draft(
    flat: FlatModel, placed: dict[str, Placed], others: dict[str, tuple[Placed, ...]], sources: list[SourceFile]
) -> Draft:
    """The shortest draft: every definition that can be inherited or copied is."""
    used_sources = list({id(one.source): one.source for one in placed.values()}.values())
    how: dict[str, How] = {}
    imports: dict[str, tuple[ImportedName, ...]] = {}
    for name in definitions_of(flat.files):
        statement = flat.definitions[name][1]
        if statement.role is Role.CLASS:
            how[name] = how_of_class(name, flat, placed)
            continue
        if _comes_along_in_each_file(name, flat, used_sources):
            # A conversion drops this import, so each generated file keeps the definition that its own parents give; linters
            # of the modular file see the name.
            how[name] = How.ALONG
            imports[name] = (ImportedName("." + module_name(flat.definitions[name][0].kind, flat.model), name),)
            continue
        givers = [one for one in used_sources if gives(one, name, statement)]
        further = [one for one in sources if one not in givers and gives(one, name, statement)]
        found = tuple(dict.fromkeys(ImportedName(one.dotted, one.originals[name]) for one in (*givers, *further)))
        if found and (flat.is_generated or "__name__" not in statement.uses):  # not the logger of another file
            imports[name] = found[:MOST_ORIGINS]
        is_shorter = bool(found) and statement.role is Role.FUNCTION
        how[name] = How.ALONG if givers else How.IMPORTED if is_shorter else How.WRITTEN
    return Draft(flat, how, placed, others, imports)


def _comes_along_in_each_file(name: str, flat: FlatModel, used_sources: Sequence[SourceFile]) -> bool:
    """Whether files of the model have a function or constant in several ways, and parents give each of them."""
    if len(flat.texts[name]) == 1:
        return False
    wanted = [one.module.definitions[name] for one in flat.files if name in one.module.definitions]
    return all(any(gives(one, name, statement) for one in used_sources) for statement in wanted)


def how_of_class(name: str, flat: FlatModel, placed: dict[str, Placed]) -> How:
    """The first form of a class. A class that no heir can give, such as one with attributes below methods, may be
    copied.
    """
    one = placed.get(name)
    users = [
        sure.source for other, sure in placed.items() if other != name and name in flat.definitions[other][1].uses
    ]
    tables = [  # `ATTENTION_CLASSES = {"sdpa": NewSdpaAttention}`
        (other, statement)
        for other, (_, statement) in flat.definitions.items()
        if statement.role is not Role.CLASS and name in statement.uses
    ]
    users += (sure.source for sure in placed.values() if any(gives(sure.source, *table) for table in tables))
    if one is None:
        statement = flat.definitions[name][1]
        return How.ALONG if any(gives(source, name, statement) for source in users) else How.WRITTEN
    may_come = one.heir.says_nothing and one.parent == name
    return How.ALONG if may_come and any(source.path == one.source.path for source in users) else How.HEIR
