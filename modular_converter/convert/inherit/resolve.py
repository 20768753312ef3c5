"""Find the neighbours of a modular file and the names that it takes from each."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from modular_converter.convert.source.library import Library, ModelNames, in_other_case, without_ignore_comments
from modular_converter.convert.source.rename import own_folder_name, rename_imported, with_relative_imports
from modular_converter.findings import (
    ConversionError,
    Edit,
    Finding,
    Location,
    apply_edits,
    edit_of,
    locate_word,
    nearest,
)
from modular_converter.model.bindings import ScopeKind, bindings_of
from modular_converter.model.index import index_module
from modular_converter.model.lexer import identifiers
from modular_converter.model.module import ImportedName, Module, Role, Statement
from modular_converter.model.nodes import dotted, parse, tested_classes, walk
from modular_converter.model.resolver import aliased
from modular_converter.rules import base_classes, input_files
from modular_converter.settings.disk import is_below
from modular_converter.settings.values import (
    Settings,
    depth_of_files,
    dots_of_models,
    dotted_name,
    folder_of_model,
    is_modular,
    model_of_modular,
    models_folder_of,
    module_name,
    names_of_models,
    parts_below_models,
    split_stem,
)


@dataclass(frozen=True)
class ModularFile:
    """The modular file that is being converted."""

    path: str
    """Absolute path of the modular file."""
    model: str
    """`gemma` of `modular_gemma.py`."""
    names: ModelNames
    """The names of the package's models, with that of this model as its classes write it."""
    module: Module

    @property
    def cased(self) -> str:
        """`Gemma`."""
        return self.names.cased(self.model)


@dataclass(frozen=True)
class Neighbour:
    """A module of another model that the modular file imports from."""

    dotted: str
    """The module as written in the modular file: `..llama.modeling_llama`."""
    path: str
    model: str
    """`llama` of `modeling_llama`."""
    module: Module
    package: str = ""
    """Dotted name of its folder when it lies in another package than the target; else ""."""
    imports_itself_as: str = ""
    """Dotted name of its folder when it imports the files beside it by absolute imports; else ""."""


@dataclass(frozen=True)
class Taken:
    """A name that the modular file imports from a neighbour."""

    neighbour: str
    """`Neighbour.dotted`."""
    name: str
    """Its name there."""


@dataclass(frozen=True)
class ResolvedImports:
    """The neighbours of a target, in the order of their imports, and the names taken from them."""

    target: ModularFile
    neighbours: Mapping[str, Neighbour]
    taken: Mapping[str, Taken]
    """Name in the modular file -> its source."""
    findings: tuple[Finding, ...] = ()
    """Warnings about parents whose names were read in another case."""
    apart: Mapping[str, str] = field(default_factory=dict)
    """Parent that is written as a class beside its heir, by the name that it gets -> the heir: see `parents_apart.py`."""

    def definition(self, name: str) -> Statement | None:
        """The (not yet renamed) definition behind a name taken from a neighbour."""
        taken = self.taken.get(name)
        return self.neighbours[taken.neighbour].module.definitions.get(taken.name) if taken else None

    def parent(self, statement: Statement) -> str | None:
        """The base of a class that is a neighbour's class, as the class writes it."""
        for base in statement.bases:
            definition = self.definition(base)
            if definition is not None and definition.role is Role.CLASS:
                return base
        return None


def is_sibling(module: str) -> bool:
    """Whether a module as an import names it lies beside the file that imports it."""
    return module.startswith(".") and not module.startswith("..")


@dataclass(frozen=True)
class NeighbourModule:
    """A neighbour import taken apart."""

    kind: str
    model: str


def open_target(path: str, library: Library) -> ModularFile:
    """Read a modular file. Raises `ConversionError` when it cannot be read or is not Python."""
    model = model_of_modular(path, library.settings)
    module = library.resolver.with_named_imports(library.module(path))
    names = library.names(models_folder_of(path, library.settings)).with_written(model, module.classes)
    return ModularFile(path, model, names, module)


def resolve_imports(target: ModularFile, library: Library) -> ResolvedImports:
    """Find the modules behind the imports of a modular file.

    Raises `ConversionError` with one finding for each import or class header that is wrong.
    """
    findings: list[Finding] = []
    neighbours: dict[str, Neighbour] = {}
    taken: dict[str, Taken] = {}
    for statement in target.module.statements:
        if statement.role is not Role.IMPORT:
            continue
        for name in statement.imports:
            found = neighbour_module(name.module, library.settings) if name.name else None  # not `import … as m`
            if found is not None and found.model == target.model and is_sibling(name.module):
                continue  # a file beside it, which it generates
            if found is None:
                mistakes = _check_ordinary(name, statement, target, library)
                findings += [one for one in mistakes if one not in findings]  # the same for each name of one import
                continue
            if name.module not in neighbours:
                neighbour = _open(name, statement, found, target, library, findings)
                if neighbour is None:
                    break
                neighbours[name.module] = neighbour
            findings += _check_taken(name, statement, found, target, library)
            taken[name.bound] = Taken(name.module, name.name)
    for name, neighbour in _guarded_helpers(target, library):
        taken.setdefault(name.bound, Taken(name.module, name.name))
        neighbours.setdefault(name.module, neighbour)
    bases = {base for statement in target.module.statements for base in statement.bases}
    for base in sorted(bases & target.module.definitions.keys()):
        if (alias := aliased(base, target.module)) in taken:
            taken[base] = taken[alias]  # `Base = LlamaMLP` means the same as `import LlamaMLP as Base`
    for base in sorted(bases & taken.keys()):
        module = neighbours[taken[base].neighbour].module
        if (alias := aliased(taken[base].name, module)) in module.classes:
            taken[base] = replace(taken[base], name=alias)  # `LlamaRMSNorm = LlamaNorm` of the neighbour
    for base in sorted(bases):
        asked = taken.get(base)
        if asked is None or asked.name not in neighbours[asked.neighbour].module.definitions:
            source = _handed_on(base, target, library)
            if source is not None:
                neighbours.setdefault(source[0].dotted, source[0])
                taken[base] = Taken(source[0].dotted, source[1])
    resolution = ResolvedImports(target, neighbours, taken)
    in_right_case = _with_parents_in_other_case(resolution, library)
    if in_right_case is not None:
        return in_right_case
    findings += _check_classes(resolution, library)
    if findings:
        raise ConversionError(*findings)
    return resolution


def _handed_on(base: str, target: ModularFile, library: Library) -> tuple[Neighbour, str] | None:
    """The neighbour that defines a base which the modular file names by way of another module, and its name there:
    `LlamaMLP` of the package `..llama`, `modeling_llama.LlamaMLP`, or what a neighbour itself imports.
    """
    settings, folder = library.settings, os.path.dirname(target.path)
    name = aliased(base, target.module) or base
    imports = (one for each in target.module.statements if each.role is Role.IMPORT for one in each.imports)
    imported = next((one for one in imports if one.bound == name.partition(".")[0]), None)
    if imported is None or not any(parts_below_models(one, settings) for one in modules_of(imported)):
        return None
    place = library.resolver.name_in(target.path, name)
    if place is None or place.name is None:
        return None
    dotted = dotted_name(place.path, settings)
    if not imported.is_relative and not library.resolver.is_own(imported.module, folder):
        package = imported.module.partition(".")[0]
        top = library.find_package(package, folder) or ""
        dotted = ".".join((package, *os.path.relpath(place.path.removesuffix(".py"), top).split(os.sep)))
    found = neighbour_module(dotted, settings)
    if found is None or found.model == target.model or library.resolver.path(dotted, folder) != place.path:
        return None
    neighbour = _open(ImportedName(dotted, place.name), target.module.statements[0], found, target, library, [])
    is_class = neighbour is not None and _is_class(neighbour.module.definitions.get(place.name))
    return (neighbour, place.name) if neighbour is not None and is_class else None


def modules_of(imported: ImportedName) -> tuple[str, ...]:
    """The modules that an import may mean: `..llama` of `from .. import llama`, beside `..` itself."""
    return (imported.module, imported.dotted) if imported.name else (imported.module,)


def _guarded_helpers(target: ModularFile, library: Library) -> Iterator[tuple[ImportedName, Neighbour]]:
    """The functions and assignments of neighbours that a plain condition imports (`if is_torchvision_available():`) and
    that the modular file itself uses: they are copied, as those of ordinary imports. What only inherited code uses stays
    an import, as published (`get_aspect_ratio_preserving_size` in embedding_gemma2), and so does a class.
    """
    statements = target.module.statements
    for statement in statements:
        for name in statement.imports if statement.role is Role.PROTECTED_IMPORT else ():
            found = neighbour_module(name.module, library.settings) if name.name else None
            is_used = any(name.bound in one.uses for one in statements if not one.imports)
            if found is None or not is_used or not _is_plain(statement, name):
                continue
            neighbour = _open(name, statement, found, target, library, [])
            definition = neighbour.module.definitions.get(name.name) if neighbour is not None else None
            if neighbour is not None and definition is not None and definition.role is not Role.CLASS:
                yield name, neighbour


def _is_plain(block: Statement, name: ImportedName) -> bool:
    """Whether a block that imports is an `if` without any other branch, and binds the name when it runs."""
    node = parse(block.text).body[0]
    return isinstance(node, ast.If) and not node.orelse and name.bound in block.binds


def neighbour_module(dotted: str, settings: Settings) -> NeighbourModule | None:
    """Take `..llama.modeling_llama` apart; None for a module that is no neighbour."""
    found = parts_below_models(dotted, settings)
    if found is None or found[0] in settings.no_models:
        return None
    split = split_stem(found[-1], settings) if len(found) == depth_of_files(settings) else None
    return NeighbourModule(*split) if split else None


def _open(
    name: ImportedName,
    statement: Statement,
    found: NeighbourModule,
    target: ModularFile,
    library: Library,
    findings: list[Finding],
) -> Neighbour | None:
    """Read the neighbour behind an import, or note why it cannot be read."""
    folder = os.path.dirname(target.path)
    path = library.resolver.path(name.module, folder)
    if path is None or not library.exists(path):
        location = _locate(target, statement, name.module, library)
        if path is None:
            package = name.module.partition(".")[0]
            findings.append(input_files.not_installed(location, name.module, package))
            return None
        looked = os.path.relpath(path, folder).replace(os.sep, "/")
        findings.append(
            input_files.unknown_neighbour(
                location, name.module, looked, candidates=_modules_like(path, target, library.settings)
            )
        )
        return None
    try:
        module = library.resolver.with_named_imports(library.module(path))
    except ConversionError as error:
        findings += error.findings
        return None
    package = ""
    if not name.is_relative:
        top = library.find_package(name.module.partition(".")[0], folder)
        if top is None or not is_below(folder, top):
            package = name.module.rpartition(".")[0]
    own = own_folder_name(module, library)
    return Neighbour(name.module, path, found.model, with_relative_imports(module, own), package, own)


def _modules_like(path: str, target: ModularFile, settings: Settings) -> list[str]:
    """The existing neighbours that a modular file may mean, for a hint: `..llama.modeling_llama` for `..lama.modeling_lama`."""
    split = split_stem(os.path.basename(path).removesuffix(".py"), settings)
    models = models_folder_of(path, settings)
    if split is None or not os.path.isdir(models):
        return []
    name = nearest(split[1], (one for one in names_of_models(models, settings) if one != target.model))
    if name is None:
        return []
    file = os.path.join(folder_of_model(models, name, settings), f"{module_name(split[0], name)}.py")
    return [dotted_name(file, settings)]


def _check_ordinary(name: ImportedName, statement: Statement, target: ModularFile, library: Library) -> list[Finding]:
    meant = _meant_neighbour(name.module, os.path.dirname(target.path), library) if name.name else None
    if meant is not None:
        location = _locate(target, statement, name.module, library)
        return [input_files.unknown_neighbour(location, name.module, meant[1], candidates=[meant[0]])]
    if name.module != library.settings.package or not name.name:
        return []
    location = _locate(target, statement, name.name, library)
    module = defining_module(name.name, name.module, os.path.dirname(target.path), library)
    return [input_files.import_from_package_root(location, name.name, name.module, module=module)]


def _meant_neighbour(dotted: str, folder: str, library: Library) -> tuple[str, str] | None:
    """For a module that does not exist, the neighbour with the same last two parts (`.llama.modeling_llama`, with the
    wrong number of dots), and the file that was looked for.
    """
    package, _, rest = dotted.partition(".")
    settings = library.settings
    parts = rest.lstrip(".").split(".")[-depth_of_files(settings) :]
    if package not in ("", settings.package):
        return None
    meant = (f"{package}.{settings.models_name}." if package else dots_of_models(settings)) + ".".join(parts)
    if neighbour_module(meant, settings) is None:
        return None
    looked, right = (library.resolver.path(one, folder) for one in (dotted, meant))
    if looked is None or right is None or library.exists(looked) or not library.exists(right):
        return None
    return meant, os.path.relpath(looked, folder).replace(os.sep, "/")


def _check_taken(
    name: ImportedName, statement: Statement, found: NeighbourModule, target: ModularFile, library: Library
) -> list[Finding]:
    settings = library.settings
    has_own_file = settings.kinds.get(settings.config_suffix, settings.default_kind) != settings.default_kind
    if has_own_file and found.kind == settings.default_kind and name.name.endswith(settings.config_suffix):
        location = _locate(target, statement, name.name, library)
        return [input_files.config_from_modeling(location, name.name, name.module)]
    return []


def _with_parents_in_other_case(resolution: ResolvedImports, library: Library) -> ResolvedImports | None:
    """The resolution of the modular file as if it wrote each base as its neighbour does, where the two differ in the
    case of the model's name alone; each is told. None if there is no such base, or if more would change than its name.
    """
    target, meant, findings = resolution.target, dict[str, str](), list[Finding]()
    for statement in target.module.statements:
        for base in statement.bases:
            if base not in resolution.taken or _exists(base, resolution):
                continue
            asked = resolution.taken[base]
            neighbour = resolution.neighbours[asked.neighbour]
            found = in_other_case(asked.name, neighbour.model, neighbour.module.classes)
            right = replace(asked, name=found[0]) if len(found) == 1 else asked
            bound = {asked.name, right.name} & target.module.names
            if right == asked or any(resolution.taken.get(name) not in (asked, right) for name in bound):
                continue
            meant[asked.name] = right.name
            place = _locate(target, statement, base, library)
            findings.append(base_classes.parent_in_other_case(place, asked.name, right.name, neighbour.dotted))
    text = rename_imported(library.text(target.path), meant) if meant else None
    if text is None:
        return None
    module = index_module(without_ignore_comments(text), target.path)  # no place moves: the names are equally long
    renamed = replace(target, module=module)
    return replace(resolve_imports(renamed, library), findings=tuple(findings))


def _check_classes(resolution: ResolvedImports, library: Library) -> list[Finding]:
    findings: list[Finding] = []
    target = resolution.target
    for statement in target.module.statements:
        parents = [base for base in statement.bases if _is_class(resolution.definition(base))]
        if len(parents) > 1:
            location = _locate(target, statement, statement.name, library)
            findings.append(base_classes.two_parents(location, statement.name, tuple(parents)))
        for base in statement.bases:
            if base in resolution.taken and not _exists(base, resolution):
                neighbour = resolution.neighbours[resolution.taken[base].neighbour]
                candidates = tuple(neighbour.module.definitions)
                at = _locate(target, statement, base, library)
                findings.append(base_classes.unknown_parent(at, base, neighbour.dotted, candidates=candidates))
            elif base in resolution.taken and (source := _imported_from(base, resolution, library)):
                at = _locate(target, statement, base, library)
                beside = resolution.taken[base].neighbour.rpartition(".")[0] if is_sibling(source.module) else ""
                module = f"{beside}{source.module}"
                findings.append(base_classes.foreign_base(at, statement.name, base, source.name, module=module))
            is_name = re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", base)
            if not is_name and (parents or any(_is_class(resolution.definition(one)) for one in identifiers(base))):
                location = _locate(target, statement, statement.name, library)
                findings.append(base_classes.base_not_a_name(location, statement.name, base))
    return findings


def _exists(name: str, resolution: ResolvedImports) -> bool:
    """Whether the neighbour that a name is taken from defines or at least imports it."""
    taken = resolution.taken[name]
    module = resolution.neighbours[taken.neighbour].module
    return taken.name in module.definitions or taken.name in module.imported


def _imported_from(base: str, resolution: ResolvedImports, library: Library) -> ImportedName | None:
    """The import by which a neighbour itself takes a class from a file of another model, or from one beside it that the
    target does not have; None for a class of its own, and for a configuration, which has an error of its own. The files of
    the kinds are there, or generated.
    """
    taken, target = resolution.taken[base], resolution.target
    neighbour = resolution.neighbours[taken.neighbour]
    found = None if taken.name in neighbour.module.definitions else neighbour.module.imported.get(taken.name)
    if found is None or not is_sibling(found.module):
        return found if found is not None and neighbour_module(found.module, library.settings) else None
    beside = library.resolver.path(found.module.replace(neighbour.model, target.model), os.path.dirname(target.path))
    is_generated = (split_stem(found.module[1:], library.settings) or ("", ""))[1] == neighbour.model
    is_there = is_generated or (beside is not None and library.exists(beside))
    return None if is_there or taken.name.endswith(library.settings.config_suffix) else found


def _is_class(definition: Statement | None) -> bool:
    return definition is not None and definition.role is Role.CLASS


def _locate(target: ModularFile, statement: Statement, word: str, library: Library) -> Location:
    return locate_word(target.path, word, library.text(target.path), statement.line)


def defining_module(name: str, package: str, beside: str, library: Library) -> str:
    """The dotted module that defines `name`; "" if it is not found. Searched are the modules directly in the package,
    and those of the model with whose name `name` begins (`LlamaConfig`).

    Args:
        package: dotted, relative or absolute.
        beside: the folder of the file that imports from it.
    """
    folder = library.resolver.stem(package, beside)
    if folder is None:
        return ""
    definition = re.compile(rf"^(?:class|def)\s+{re.escape(name)}\b|^{re.escape(name)}\s*[:=]", re.MULTILINE)
    for path in _candidates(name, folder, library.settings):
        if definition.search(library.text_if_readable(path) or ""):
            parts = os.path.relpath(path, folder).removesuffix(".py").split(os.sep)
            return ".".join([package, *(part for part in parts if part != "__init__")])
    return ""


def _candidates(name: str, folder: str, settings: Settings) -> Iterator[str]:
    """The files to look into: first those of the model with the longest fitting name, in folders of these names."""
    spelled = name.lower().replace("_", "")
    for one in (os.path.join(folder, name) for name in settings.models_names):
        fitting = [entry for entry in _entries(one) if spelled.startswith(entry.replace("_", ""))]
        for model in sorted(fitting, key=lambda entry: (-len(entry), entry)):
            yield from _python_files(os.path.join(one, model), settings)
    yield from _python_files(folder, settings)
    yield from _python_files(os.path.join(folder, "utils"), settings)


def _python_files(folder: str, settings: Settings) -> Iterator[str]:
    """The modules of a folder, but for modular files, which nothing may be imported from."""
    names = (name for name in _entries(folder) if name.endswith(".py") and not is_modular(name, settings))
    return (os.path.join(folder, name) for name in names)


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def with_heirs_asked_for(resolution: ResolvedImports) -> ResolvedImports:
    """The modular file, with its heirs of a parent beside this one wherever it asks for instances of it, since with inheritance
    they are: `isinstance(x, (OldMLP, NewMLP))` for `isinstance(x, OldMLP)`.
    """
    heirs: dict[str, list[str]] = {}
    module = resolution.target.module
    for statement in module.statements:
        parent = resolution.parent(statement) if statement.role is Role.CLASS else None
        if parent is not None and parent.isidentifier():
            heirs.setdefault(parent, []).append(statement.name)
    if not heirs:
        return resolution
    asks = re.compile(r"\b(isinstance|issubclass|except|case)\b")
    statements = tuple(
        _with_heirs(one, heirs) if not one.imports and asks.search(one.text) and heirs.keys() & one.uses else one
        for one in module.statements
    )
    return replace(resolution, target=replace(resolution.target, module=replace(module, statements=statements)))


def _with_heirs(statement: Statement, heirs: Mapping[str, Sequence[str]]) -> Statement:
    tree = parse(statement.text)
    hidden = bound_within(tree)
    meant = {parent: names for parent, names in heirs.items() if hidden.isdisjoint((parent, *names))}
    edits = [edit for asked in tested_classes(walk(tree)) for edit in _edits(asked, statement.text, meant)]
    return replace(statement, text=apply_edits(statement.text, edits), known_uses=None) if edits else statement


def bound_within(tree: ast.Module) -> frozenset[str]:
    """The names that functions and classes within a definition bind, where they hide those of the module."""
    scopes = (one for one in bindings_of(*tree.body).everywhere if one.kind is not ScopeKind.BLOCK)
    return frozenset[str]().union(*(one.local for one in scopes))


def _edits(
    asked: Mapping[ast.expr, ast.expr | ast.MatchClass], text: str, heirs: Mapping[str, Sequence[str]]
) -> Iterator[Edit]:
    named = {dotted(one): place for one, place in asked.items()}
    for parent, one in named.items():
        if lacking := [name for name in heirs.get(parent, ()) if name not in named]:
            old = ast.get_source_segment(text, one) or parent
            both = (f"{name}{old[len(parent) :]}" for name in (parent, *lacking))
            new = " | ".join(both) if isinstance(one, ast.MatchClass) else ", ".join(both)
            new = f"({new})" if isinstance(one, ast.Name) and len(asked) == 1 else new
            yield edit_of(one, text, new)
