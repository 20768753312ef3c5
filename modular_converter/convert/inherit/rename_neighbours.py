"""Rename everything that comes from a neighbour to its name in the target.

The prefix that replaces the neighbour's name is usually the target model's own cased name. `class EmuTextMLP(LlamaMLP)` in
model `emu` says that what comes from llama is called `EmuText…`.

Names in a neighbour's code that belong to other libraries stay, though they contain the model's: `torch.diagonal` in `dia`.
"""

from __future__ import annotations

import ast
import builtins
import functools
import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

from modular_converter.convert.inherit.resolve import (
    ModularFile,
    Neighbour,
    ResolvedImports,
    is_sibling,
    neighbour_module,
)
from modular_converter.convert.source.library import Library, common_suffix
from modular_converter.convert.source.rename import (
    RenamedModule,
    Renamer,
    absolute_imports,
    absolute_module,
    is_in_models,
    rename_globals,
)
from modular_converter.findings import UNPARSABLE, ConversionError, Location
from modular_converter.model.bindings import bindings_of
from modular_converter.model.index import imported_names, imports_within, relative_imports
from modular_converter.model.lexer import QUOTED_WORD
from modular_converter.model.module import ImportedName, Module, Role, Statement
from modular_converter.model.nodes import children, dotted, parse, walk
from modular_converter.rules import input_files
from modular_converter.settings.values import Settings, models_folder_of, module_name, parts_below_models


_BUILTINS = frozenset(vars(builtins))
_HAS_IMPORT = re.compile(r"(?:^|[;:])[ \t]*(?:from|import)\b", re.MULTILINE)  # matches in strings, too


@dataclass(frozen=True)
class ForeignNames:
    """The names that stay when a neighbour is renamed."""

    names: frozenset[str] = frozenset()
    """Names that are imported, builtins, and attributes of imported modules with what they are looked up in: `torch.diagonal`."""
    members: frozenset[str] = frozenset()
    """Attributes, keywords and words in quotes, whatever they belong to: `diagonal`."""


class OwnModels(NamedTuple):
    """What an import of models leads into."""

    packages: frozenset[str]
    """The packages that hold the models, as imports begin with them."""
    folders: tuple[str, ...]
    """The names of folders of models."""

    @classmethod
    def of(cls, neighbour: Neighbour, library: Library) -> OwnModels:
        """The models of the target and of a neighbour."""
        names = (library.settings.package, neighbour.package)
        return cls(frozenset(name.partition(".")[0] for name in names), library.settings.models_names)


def foreign_names(neighbour: Neighbour, renamer: Renamer, target: ModularFile, library: Library) -> ForeignNames:
    """The names of other libraries in a neighbour's code that renaming would spoil.

    An attribute or a keyword is the model's if a file of the model binds it. `x.clip(0)` of `clip` is torch's if no file
    has such a method, parameter or attribute, and `torch.clamp(x, clip=clip)` is torch's even so. So is what a class sets
    in its body for a base from outside, if no code of the model reads it, and a word of what is imported from outside.
    `sample` of `sam` is another word, whoever binds it, unless it is a definition at the top level: these are published
    under such names (`Glm4vMoeisionMlp`).
    """
    models = OwnModels.of(neighbour, library)
    module = neighbour.module
    code = [statement for statement in module.statements if not statement.imports]
    used = frozenset[str]().union(*(statement.uses for statement in code))
    imported = frozenset(_imported(neighbour, renamer, target, library, models))
    quoted = {word for one in code if renamer.old in one.text for word in QUOTED_WORD.findall(one.text)}
    changed = renamer.changed(used | quoted)
    own = module.names - imported
    classes = {name.lstrip("_") for name in own}
    own |= {word for word in changed if word[0] == "_" and word[1:].partition("__")[0] in classes}  # `_OldMLP__size`
    siblings = (one for each in module.statements for one in relative_imports(each) if one.module[:2] != "..")
    others = changed - module.definitions.keys() - {name for one in siblings for name in (one.name, one.bound)}
    longer = frozenset(word for word in others if renamer.is_within_word(word))
    words = (changed & used) - imported - longer
    keys = _spelt_outside(changed - used, neighbour, library)
    # Most neighbours have no such word but the names of their classes, which are no attributes of anything.
    if words <= own and not _looked_up(words, code):
        return ForeignNames(imported, longer | keys)
    builtin = words & _BUILTINS - module.names  # `set` where the model is `set`
    asked = words - own | _looked_up(words, module.statements)
    uses = [uses_of_words(_texts_with(asked, path, library), asked, models) for path in _files(neighbour, library)]
    bound, keywords, _, for_bases, read = (frozenset[str]().union(*some) for some in zip(*uses, strict=True))
    theirs = keywords | (asked - bound) | (for_bases - read) | _spelt_outside(bound, neighbour, library)
    return ForeignNames(imported | uses[0].chains | builtin, (theirs - own) | longer | keys)


def _spelt_outside(words: frozenset[str], neighbour: Neighbour, library: Library) -> frozenset[str]:
    """The words, but for the model's name alone, that what the neighbour imports from outside of the models has."""
    asked = {word for word in words if word.lower() != neighbour.model}
    spelt = words_outside(neighbour, neighbour.module.imported.values(), library) if asked else ()
    return frozenset(asked).intersection(frozenset[str]().union(*(found for _, found in spelt)))


def words_outside(
    neighbour: Neighbour, imports: Iterable[ImportedName], library: Library
) -> Iterator[tuple[str, frozenset[str]]]:
    """The names that are imported from modules outside of the models, each with the words of its definition there (a
    parameter, an attribute of a base), and those in quotes of the module (a key of a table).
    """
    own, folder = OwnModels.of(neighbour, library), os.path.dirname(neighbour.path)
    for imported in (one for one in imports if one.name and is_outside(one, own)):
        place = library.resolver.definition(imported.module, imported.name, folder)
        if place is not None and place.name is not None:
            module = library.module(place.path)
            if statement := module.definitions.get(place.name):
                yield imported.bound, statement.uses | module.quoted


def _looked_up(words: frozenset[str], statements: Iterable[Statement]) -> frozenset[str]:
    """The words that occur behind a dot."""
    return frozenset(word for one in statements for word in words & one.uses if f".{word}" in one.text)


def _texts_with(words: Collection[str], path: str, library: Library) -> tuple[str, ...]:
    """The statements of a file that hold some words, and those with imports; none if no word occurs."""
    text = library.text_if_readable(path) or ""
    words = [word for word in words if word in text]
    if not words:
        return ()
    module = library.module_if_readable(path)
    texts = [one.text for one in module.statements] if module is not None else []
    return tuple(
        one for one in texts if any(word in one for word in words) or ("import" in one and _HAS_IMPORT.search(one))
    )


def _imported(
    neighbour: Neighbour, renamer: Renamer, target: ModularFile, library: Library, own: OwnModels
) -> Iterator[str]:
    """The names of imports from outside of the models, `from llama_cpp import Llama`, and from other models.

    A module of the library that is no model's may have such a name for the target too, and the modular file may define
    it: `WavLMOutput` in place of `from ...outputs import Wav2Vec2Output`.
    """
    for statement in neighbour.module.statements:
        for imported in statement.imports or imports_within(statement.text, renamer.old):
            names = {name for name in (imported.name, imported.asname, imported.bound) if renamer.name(name) != name}
            if not names or not (is_outside(imported, own) or _is_of_other_model(imported, neighbour, library)):
                continue
            new = renamer.name(imported.name)
            is_own = imported.is_relative or imported.module.partition(".")[0] in own.packages
            if not is_own or new not in target.module.names | _defined(imported, neighbour, library):
                yield from names


def _is_of_other_model(imported: ImportedName, neighbour: Neighbour, library: Library) -> bool:
    """Whether an import leads to a file of another model, whose name may contain the neighbour's: `llama4`."""
    found = neighbour_module(imported.module, library.settings)
    below = parts_below_models(imported.module, library.settings)
    own = os.path.relpath(neighbour.path, models_folder_of(neighbour.path, library.settings)).removesuffix(".py")
    return bool(found and below and below[0] != own.split(os.sep)[0] and found.model != neighbour.model)


def _defined(imported: ImportedName, neighbour: Neighbour, library: Library) -> frozenset[str]:
    """The names that the module of an import defines; none if it cannot be read."""
    path = library.resolver.file(imported.module, os.path.dirname(neighbour.path))
    module = library.module_if_readable(path) if path else None
    return module.names if module is not None else frozenset()


def is_outside(imported: ImportedName, own: OwnModels) -> bool:
    """Whether an import in a file of a model leads out of the models: to another library, or to a module of their own that
    is no model's.
    """
    module = imported.module
    if imported.is_relative and not module.startswith("..."):
        return False
    is_own = imported.is_relative or module.partition(".")[0] in own.packages
    return not (is_own and is_in_models(module, own.folders))


def _files(neighbour: Neighbour, library: Library) -> list[str]:
    """The files of a neighbour's model: its own one first, then those of other kinds."""
    folder = os.path.dirname(neighbour.path)
    names = (module_name(kind, neighbour.model) for kind in library.settings.file_kinds)
    paths = [os.path.join(folder, f"{name}.py") for name in names]
    return [neighbour.path, *(path for path in paths if path != neighbour.path and library.exists(path))]


class WordUses(NamedTuple):
    """The uses of some words in a file."""

    bound: frozenset[str] = frozenset()
    """Defined, assigned, taken as a parameter, read from a configuration or named by a string: the model's own."""
    keywords: frozenset[str] = frozenset()
    """Keywords in calls of what is imported from outside."""
    chains: frozenset[str] = frozenset()
    """Attributes of what is imported from outside: `torch.diagonal`."""
    for_bases: frozenset[str] = frozenset()
    """Set in the bodies of classes with a base from outside."""
    read: frozenset[str] = frozenset()
    """Read as attributes or names, or named by a string."""


@functools.lru_cache(maxsize=64)  # a neighbour is often that of the next models too
def uses_of_words(texts: tuple[str, ...], words: frozenset[str], own: OwnModels) -> WordUses:
    """The uses of some words in a file; none if it is not Python.

    Args:
        texts: the statements of the file in which the words occur, and those with imports.
        words: identifiers.
    """
    try:
        statements = [node for text in texts for node in parse(text).body]
    except UNPARSABLE:
        return WordUses()
    nodes = walk(*statements)
    found = (node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom)))
    imports = {name.bound: is_outside(name, own) for node in found for name in imported_names(node)}
    scopes = bindings_of(*statements).everywhere
    bound = {name for scope in scopes for name in words & (scope.binds | scope.local)}
    foreign_keywords, chains, read, for_bases = set[str](), set[str](), set[str](), set[str]()
    for node in nodes:
        read.update(_read(node))
        bound.update(name for name in _named(node) if name in words)
        if start := _computed(node):
            bound.update(name for name in words if name.startswith(start))
        if isinstance(node, ast.Call):
            names = words.intersection(keyword.arg for keyword in node.keywords if keyword.arg)
            if names and imports.get(_root(node.func)):
                foreign_keywords |= names
        elif isinstance(node, ast.Attribute) and node.attr in words:
            chain = dotted(node)
            if imports.get(chain.partition(".")[0]):
                chains.add(chain)
        elif isinstance(node, ast.ClassDef) and any(imports.get(_root(base)) for base in node.bases):
            assigned = (one for one in node.body if isinstance(one, (ast.Assign, ast.AnnAssign)))
            for_bases |= words & bindings_of(*assigned).assigns
    return WordUses(*map(frozenset, (bound, foreign_keywords, chains, for_bases, read)))


def _read(node: ast.AST) -> Sequence[str]:
    """The word that a node reads, or that a string has."""
    match node:
        case (
            ast.Attribute(attr=name, ctx=ast.Load())
            | ast.Name(id=name, ctx=ast.Load())
            | ast.Constant(value=str() as name)
        ):
            return (name,)
    return ()


def _computed(node: ast.AST) -> str:
    """The constant beginning of a text that is put together, and may name an attribute: `"dia_" + key`, `"dia_%s" % key`.
    That of an f-string is not renamed.
    """
    while isinstance(node, ast.BinOp):
        node = node.left
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return re.split("[%{]", node.value)[0]
    if isinstance(node, ast.Attribute) and node.attr == "format" and isinstance(node.value, ast.Constant):
        return re.split("[%{]", str(node.value.value))[0]
    return ""


def _root(node: ast.expr) -> str:
    """The name that an expression begins with: `F` of `F.pad(x)[0].shape`; "" for another beginning."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _named(node: ast.AST) -> Sequence[str]:
    """The attributes that a node sets, and the names that strings in it may bind."""
    match node:
        case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
            return (name,)
        case ast.Attribute(attr=name, value=ast.Name(id=holder) | ast.Attribute(attr=holder)):
            return (name,) if holder.endswith("config") else ()
        case ast.ImportFrom(module=str() as module):  # in a function: `from .configuration_dia import DiaConfig`
            return module.split(".")
        case ast.Call() | ast.Dict() | ast.List() | ast.Tuple() | ast.Set() | ast.Subscript():
            # `register_buffer("…", x)`, `kwargs["…"]`, names in lists; but not `F.pad(x, mode="…")`.
            constants = (child for child in children(node) if isinstance(child, ast.Constant))
            texts = [child.value for child in constants if isinstance(child.value, str)]
            fields = " ".join(texts[1:2] if isinstance(node, ast.Call) else ())  # `namedtuple("Pair", "old, other")`
            return [*texts, *re.findall(r"\w+", fields)]
    return ()


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
    for at, neighbour in resolution.neighbours.items():
        names = library.names(models_folder_of(neighbour.path, settings)) if neighbour.package else target.names
        neighbour_names = names.with_written(neighbour.model, neighbour.module.classes)
        cased = neighbour_names.cased(neighbour.model)
        prefix = choose_prefix(children.get(at, ()), target.cased, cased, neighbour.module.classes)
        own = Renamer(neighbour.model, neighbour_names.cased(neighbour.model), target.model, target.cased)
        own = replace(own, kept=settings.kept_names, copy_comment=settings.copy_comment, models=settings.models_names)
        foreign = foreign_names(neighbour, _renamer(own, prefix, target), target, library)
        name_alone = {word for word in foreign.members if word.lower() == neighbour.model}
        modules = [one.module for one in resolution.neighbours.values() if one.model == neighbour.model]
        constants = [_constants_in_use(one, _renamer(own, prefix, target), target.module, settings) for one in modules]
        kept = (*settings.kept_names, *sorted((foreign.members - name_alone).union(*constants)))
        own = replace(own, kept=kept, foreign=foreign.names, members=frozenset(name_alone))
        definitions = RenamedModule(_portable(neighbour), _renamer(own, prefix, target))
        renamed[at] = RenamedNeighbour(neighbour, prefix, definitions, own)
    return _with_new_names(Neighbourhood(resolution, renamed))


def _constants_in_use(module: Module, renamer: Renamer, own: Module, settings: Settings) -> frozenset[str]:
    """The assignments of a neighbour whose new names the modular file gives to others, `LLAMA_SIZES` beside its `GEMMA_SIZES`:
    inherited code goes on to read the neighbour's. A function or class of the modular file takes the neighbour's place.
    """
    overriding = (*settings.overriding_assignments, *settings.overriding_unless_none)
    names = [one.name for one in module.statements if one.role is Role.ASSIGNMENT]
    found = ((name, own.definitions.get(renamer.name(name))) for name in names)
    return frozenset(
        name
        for name, other in found
        if other is not None
        and other.role is Role.ASSIGNMENT
        and other.name != name
        and not any(part in name for part in overriding)
        and other.text != renamer.code(module.definitions[name].text)
    )


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


def _children(resolution: ResolvedImports) -> dict[str, list[tuple[str, str]]]:
    """Neighbour -> the classes of the modular file that inherit from its classes, each with the parent."""
    found: dict[str, list[tuple[str, str]]] = {}
    for statement in resolution.target.module.statements:
        for base in statement.bases if statement.role is Role.CLASS else ():
            definition = resolution.definition(base) if base in resolution.taken else None
            if definition is not None and definition.role is Role.CLASS:
                asked = resolution.taken[base]
                is_theirs = base in resolution.neighbours[asked.neighbour].module.names
                child = resolution.apart.get(statement.name, statement.name)
                found.setdefault(asked.neighbour, []).append((child, base if is_theirs else asked.name))
    return found


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
