"""One draft, converted in memory and compared with the flat model."""

from __future__ import annotations

import ast
import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from modular_converter.authoring.draft import Draft, closed, modular_text
from modular_converter.authoring.flat_model import FlatFile, FlatModel, import_origin
from modular_converter.authoring.library_index import ORIGIN, normal, squeezed, texts_of
from modular_converter.convert.batch import Run
from modular_converter.convert.emit.format import FormatMemory, format_files
from modular_converter.convert.emit.imports import names_in_annotations
from modular_converter.convert.pipeline import convert
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.rename import in_own_terms
from modular_converter.findings import Conversion
from modular_converter.model.index import index_module
from modular_converter.model.module import ImportedName, Module, Role, Statement, has_unread_names
from modular_converter.model.nodes import parse


@dataclass(frozen=True)
class FileDifference:
    """The differences of one generated file from the flat file."""

    file: FlatFile
    missing: tuple[str, ...] = ()
    """Definitions that are missing."""
    other: tuple[str, ...] = ()
    """Definitions with another text."""
    extra: tuple[str, ...] = ()
    """Definitions that the flat file does not have."""
    imports: tuple[str, ...] = ()
    """Names that are imported from elsewhere, or only in one of the files."""
    order: tuple[str, str] | None = None
    """The first place where the order differs: the expected name, and the one found there."""
    exports: bool = False
    """Whether `__all__` differs."""
    idle: tuple[str, ...] = ()
    """Statements of a file written by hand that do nothing; no generated file has them."""
    dropped: tuple[str, ...] = ()
    """Usual definitions of a file written by hand, such as a logger, that are unused; no generated file has them."""
    origins: tuple[str, ...] = ()
    """Definitions of a file written by hand with another comment on their origin."""
    guarded: tuple[str, ...] = ()
    """Names that the file imports without a condition, and the generated file on a condition of another file."""
    bytes_differ: bool = False
    """Whether anything differs at all."""
    is_layout: bool = False
    """Whether nothing but white space, parentheses and commas differs."""

    @property
    def is_same_code(self) -> bool:
        """Whether all definitions, imports and exports are the same."""
        return not (self.missing or self.other or self.extra or self.imports or self.exports)

    @property
    def reason(self) -> str:
        """The differences in words."""
        parts = (
            ("not generated: " + ", ".join(self.missing)) if self.missing else "",
            ("generated otherwise: " + ", ".join(self.other)) if self.other else "",
            ("generated too: " + ", ".join(self.extra)) if self.extra else "",
            ("imported otherwise: " + ", ".join(self.imports)) if self.imports else "",
            "another `__all__`" if self.exports else "",
            f"`{self.order[0]}` and `{self.order[1]}` in another order" if self.order else "",
        )
        return "; ".join(filter(None, parts)) or "the lines between the definitions"

    @property
    def rewritten(self) -> str:
        """The difference of a generated file with the same code: the order of definitions, or the layout; else ""."""
        if self.round_trips or not (self.file.is_generated and self.is_same_code):
            return ""
        return self.moved or ("other empty lines or line breaks between the definitions" if self.is_layout else "")

    @property
    def moved(self) -> str:
        """The place from which on definitions stand in another order, in words; or ""."""
        return f"another order of definitions, from `{self.order[0]}` on" if self.order else ""

    @property
    def round_trips(self) -> bool:
        """Whether the file is proven: byte for byte if it was generated, else definition by definition."""
        return not self.bytes_differ if self.file.is_generated else self.is_same_code


def compare_roughly(flat: FlatModel, texts: Mapping[str, str]) -> tuple[FileDifference, ...]:
    """The definitions that differ in unformatted texts; they explain why a conversion fails."""
    found = []
    for file in flat.files:
        wanted = texts_of(file.module)
        made = texts_of(index_module(texts.get(file.path, ""), file.path))
        other = (name for name in wanted if name in made and normal(wanted[name]) != normal(made[name]))
        missing = tuple(name for name in wanted if name not in made)
        extra = tuple(name for name in made if name not in wanted)
        found.append(FileDifference(file, missing, tuple(other), extra, bytes_differ=True))
    return tuple(found)


def _compare(file: FlatFile, text: str, library: Library) -> FileDifference:
    if text == file.text != "":
        return FileDifference(file)
    made = in_own_terms(index_module(text, file.path), library)
    wanted, found = texts_of(file.module, file.is_generated), texts_of(made, file.is_generated)
    dropped = tuple(
        name
        for name in wanted
        if name not in found
        and name in library.settings.customary_names
        and not file.is_generated
        and not any(name in one.uses for one in file.module.statements if one.name != name)
    )
    common = [name for name in wanted if name in found]
    places = [name for name in found if name in wanted]
    missing = [name for name in wanted if name not in found and name not in dropped]
    missing += ["the file, since it has no class"] * (not text and not missing)
    return FileDifference(
        file,
        missing=(*missing, *_lost_statements(file.module, made)),
        other=tuple(name for name in common if wanted[name] != found[name]),
        extra=tuple(name for name in found if name not in wanted),
        imports=_other_imports(file, made, dropped, library),
        order=next(((one, other) for one, other in zip(common, places) if one != other), None),
        exports=_exports(file.module) != _exports(made),
        idle=tuple(one.text.partition("\n")[0] for one in file.module.statements if is_idle(one)),
        dropped=dropped,
        origins=tuple(_with_other_origin(file.module, made)),
        guarded=tuple(sorted(guarded_keys(made) & plain_keys(file.module))),
        bytes_differ=True,
        is_layout=squeezed(text) == squeezed(file.text),
    )


def is_idle(statement: Statement) -> bool:
    """Whether a statement does nothing: `if TYPE_CHECKING: pass`, which is left where imports were removed."""
    return statement.role is Role.OTHER and not statement.name and _is_idle(parse(statement.text).body[0])


def _is_idle(node: ast.stmt) -> bool:
    if isinstance(node, ast.If):
        is_plain = isinstance(node.test, (ast.Name, ast.Attribute))
        return is_plain and all(map(_is_idle, (*node.body, *node.orelse)))
    return isinstance(node, ast.Pass)


def _with_other_origin(wanted: Module, made: Module) -> Iterator[str]:
    """The definitions whose comments on their origin differ."""
    for name, one in wanted.definitions.items():
        other = made.definitions.get(name)
        if other is not None and ORIGIN.findall(one.lead) != ORIGIN.findall(other.lead):
            yield name


def _exports(module: Module) -> tuple[list[str], bool]:
    """The exported names, sorted: a generated file has those of its own kind, in the order of the modular file. And
    whether there are more, which only running the file would tell.
    """
    exports = module.definitions.get("__all__")
    return sorted(module.exported), exports is not None and has_unread_names(exports.text)


def _lost_statements(wanted: Module, made: Module) -> Iterator[str]:
    """The missing top-level statements without a definition, or whose definition a later one replaces."""
    found = {one.text for one in made.statements}
    last = {id(one) for one in wanted.definitions.values()}
    lost = (one for one in wanted.statements if not one.imports and id(one) not in last and one.text not in found)
    yield from (f"the statement in line {one.line}" for one in lost if not is_idle(one))


def _other_imports(file: FlatFile, made: Module, dropped: Collection[str], library: Library) -> tuple[str, ...]:
    """The names that two modules import differently. A file written by hand may import more than it uses, and may
    import an object from a file that only imports it. An import with a condition or a substitute must be generated with
    it. A plain import may be generated with a condition: some kinds of generated file protect the optional libraries.
    """
    one, other = _imports(file.module), _imports(made)
    if not file.is_generated:
        kept = (one for one in file.module.statements if not (one.imports or one.name in dropped or is_idle(one)))
        used = _used(tuple(kept), {name.bound for name in one.values()})
        one = {key: name for key, name in one.items() if name.bound in used or name.module == "__future__"}
        other = {key: name for key, name in other.items() if name.bound in used or key in one}
    texts = {statement.text for statement in made.statements}
    lost = (name.key for name, text in _protected(file.module) if name.key in one and text not in texts)
    differing = {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}
    if not file.is_generated:
        origins = {
            key: [import_origin(some[key], file.path, library) for some in (one, other)]
            for key in one.keys() & other.keys()
        }
        differing -= {key for key, (origin, made_of) in origins.items() if origin == made_of}
    stars = _stars(file.module) ^ _stars(made)
    return tuple(sorted({*differing, *lost, *(f"* of {module}" for module in stars)}))


def guarded_keys(module: Module) -> frozenset[str]:
    """The keys of a module's imports that have a condition at run time."""
    guards = (one for one in module.statements if one.role is Role.PROTECTED_IMPORT)
    found = (name.key for one in guards if "TYPE_CHECKING" not in one.condition for name in one.imports)
    return frozenset(found) - plain_keys(module)


def plain_keys(module: Module) -> frozenset[str]:
    """The keys of a module's imports without a condition."""
    return frozenset(name.key for one in module.statements if one.role is Role.IMPORT for name in one.imports)


def _protected(module: Module) -> Iterator[tuple[ImportedName, str]]:
    """The names that are imported on a condition, each with the whole statement."""
    found = (one for one in module.statements if one.role is Role.PROTECTED_IMPORT)
    return ((name, one.text) for one in found for name in one.imports)


def _stars(module: Module) -> set[str]:
    """The modules of star imports, used or not: the names that they bind are unknown."""
    return {name.module for one in module.statements for name in one.imports if name.name == "*"}


def _used(statements: Sequence[Statement], importable: set[str]) -> set[str]:
    """The names that statements use in code, and in annotations that are strings."""
    used = set[str]().union(*(one.uses for one in statements))
    return used | names_in_annotations("\n".join(one.text for one in statements), importable - used)


def _imports(module: Module) -> dict[str, ImportedName]:
    return {name.key: name for one in module.statements for name in one.imports if name.name != "*"}


@dataclass(frozen=True)
class Proof:
    """A draft with its conversion."""

    draft: Draft
    text: str
    """The modular file, formatted."""
    conversion: Conversion
    differences: tuple[FileDifference, ...]
    texts: Mapping[str, str]
    """Path -> generated text; if the conversion fails, the texts before the examination, if any."""
    reasons: Mapping[str, str]
    """Definition -> the reason why it is longer than at first."""

    @property
    def round_trips(self) -> bool:
        """Whether every file is proven."""
        return not self.conversion.failed and all(one.round_trips for one in self.differences)

    @property
    def rewritten(self) -> Mapping[str, str]:
        """Generated file with the same code -> the difference, of order or layout."""
        return {one.file.path: one.rewritten for one in self.differences if one.rewritten}

    @property
    def has_same_code(self) -> bool:
        """Whether every file is proven, or at least has the same code in another order or layout."""
        return not self.conversion.failed and all(one.round_trips or one.rewritten for one in self.differences)

    @property
    def lines_back(self) -> int:
        """The number of lines of the flat files that are proven."""
        if self.conversion.failed:
            return 0
        return sum(one.file.text.count("\n") for one in self.differences if one.round_trips)

    @property
    def lines(self) -> int:
        """The lines of the modular file."""
        return self.text.count("\n")


def attempt(draft: Draft, library: Library, reasons: Mapping[str, str]) -> Proof:
    """Convert a draft in memory and compare the result with the flat model. Nothing is written."""
    draft = closed(draft)
    known = _known(draft.flat, library)
    text = modular_text(draft)
    if text not in known.outcomes:
        known.outcomes[text] = _outcome(text, draft.flat, library, known.formats)
    return Proof(draft, *known.outcomes[text], reasons)


Outcome = tuple[str, Conversion, tuple[FileDifference, ...], Mapping[str, str]]
"""A modular file, its conversion, the differences, and the generated texts."""


@dataclass(frozen=True)
class _Known:
    """The results of the drafts of one model. One in six is like one before; two in three give no other file."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """Modular file, not formatted -> what it gave."""
    formats: FormatMemory = field(default_factory=FormatMemory)


@functools.lru_cache(maxsize=1)
def _known(flat: FlatModel, library: Library) -> _Known:
    return _Known()


def _outcome(text: str, flat: FlatModel, library: Library, formats: FormatMemory) -> Outcome:
    path = flat.modular
    text = format_files({path: text}, library.settings).texts[path]
    run = Run(library.settings, {path: text}, workers=1, format=formats.format, read=library)
    conversion = run.convert([path])[0]
    if not conversion.failed:
        made = conversion.files
        return text, conversion, tuple(_compare(one, made.get(one.path, ""), library) for one in flat.files), made
    rough = convert(path, library.under({path: text})).files
    return text, conversion, compare_roughly(flat, rough) if rough else (), rough
