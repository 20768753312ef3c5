"""The conversion of one modular file, as one line of steps:

read -> index -> resolve neighbours -> rename -> merge classes -> close dependencies -> split -> imports -> text

Formatting and writing are done for all files of a run together (`batch.py`). The last step before gathers the facts of the conversion and runs the checks of all rules; it stands
below.
"""

from __future__ import annotations

import ast
import functools
import itertools
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES

from modular_converter.convert.emit.assemble import assemble
from modular_converter.convert.emit.imports import names_in_annotations
from modular_converter.convert.examine.collisions import report_changed_meanings
from modular_converter.convert.examine.faults import globals_read
from modular_converter.convert.examine.finished import FinishedConversion
from modular_converter.convert.examine.meanings import report_read_annotations
from modular_converter.convert.examine.top_level import fillings_of, report_lost_statements, report_redefined
from modular_converter.convert.inherit.build import BuiltClass, build_classes
from modular_converter.convert.inherit.parents_apart import (
    with_causes,
    with_parents_apart,
    with_parents_apart_in,
)
from modular_converter.convert.inherit.rename_neighbours import RenamedNeighbour, asked_prefix, rename_neighbours
from modular_converter.convert.inherit.resolve import (
    ModularFile,
    ResolvedImports,
    neighbour_module,
    open_target,
    resolve_imports,
    with_heirs_asked_for,
)
from modular_converter.convert.inline.collect import collect_definitions
from modular_converter.convert.source.library import Library
from modular_converter.facts import ClassFacts, Facts, KnownAttributes, NeighbourFacts, Parent
from modular_converter.findings import Conversion, ConversionError, Finding, Location
from modular_converter.model.class_blocks import class_node, names_in_class
from modular_converter.model.index import relative_imports
from modular_converter.model.module import ImportedName, Module, Role
from modular_converter.model.overriding import INIT_SUBCLASS, METACLASS, metaclass_of
from modular_converter.rules import checks, input_files
from modular_converter.settings.values import modular_of, split_stem


def convert(path: str, library: Library) -> Conversion:
    """Convert the modular file at an absolute path. The texts are not formatted yet.

    Faults of the input are never raised: they are in the findings, and then there are no files.

    Args:
        library: a library that observes this conversion alone (`Library.observing`).
    """
    seen = library.observations
    try:
        finished, files, findings = _converted(path, library)
    except ConversionError as error:
        return Conversion(path, {}, error.findings, reads=seen.reads)
    if any(finding.is_error for finding in findings):
        return Conversion(path, {}, findings, reads=seen.reads)
    folder = os.path.dirname(path)
    texts = {os.path.join(folder, name): text for name, text in files.items()}
    origins = {
        os.path.join(folder, file.name): tuple(one.origin for one in finished.ordered[file.kind])
        for file in finished.files
    }
    return Conversion(path, texts, findings, origins, seen.reads, dict(sorted(seen.packages.items())))


def first_steps(path: str, texts: Iterable[str], library: Library) -> FinishedConversion:
    """The first steps of a conversion that gives these texts: the neighbours, renamed; the classes, merged; the definitions of
    each generated file.

    Raises `ConversionError` with the faults of the input.
    """
    resolution = resolve_imports(open_target(path, library), library)
    return _finished(with_parents_apart_in(resolution, texts, library.settings), library)


_Converted = tuple[FinishedConversion, Mapping[str, str], tuple[Finding, ...]]
"""A conversion with its texts and its findings."""


def _converted(path: str, library: Library) -> _Converted:
    """The conversion in which each heir is one class with its parent, or two where that has an error that two do not have."""
    resolution = resolve_imports(open_target(path, library), library)
    first: _Converted | ConversionError | None = None
    while True:  # each time with more parents apart
        try:
            found: _Converted | ConversionError = _examined(_finished(resolution, library))
        except ConversionError as error:
            found = error
        findings = found.findings if isinstance(found, ConversionError) else found[2]
        errors = [one for one in findings if one.is_error]
        if not errors:
            break
        first = first or found
        apart = with_parents_apart(resolution, errors, library.settings)
        if apart is resolution:
            found = _with_causes(first, () if found is first else errors, resolution)
            break
        resolution = apart
    if isinstance(found, ConversionError):
        raise found
    return found


def _with_causes(
    found: _Converted | ConversionError, later: Sequence[Finding], resolution: ResolvedImports
) -> _Converted | ConversionError:
    if isinstance(found, ConversionError):
        return ConversionError(*with_causes(found.findings, later, resolution))
    return found[0], found[1], with_causes(found[2], later, resolution)


def _finished(resolution: ResolvedImports, library: Library) -> FinishedConversion:
    neighbours = rename_neighbours(with_heirs_asked_for(resolution), library)
    classes = build_classes(neighbours, library)
    return FinishedConversion(neighbours, classes, collect_definitions(neighbours, classes, library), library)


def _examined(finished: FinishedConversion) -> _Converted:
    files = assemble(finished.neighbours, finished.collection, finished.library)
    return finished, files, _findings(finished, files)


def _findings(finished: FinishedConversion, texts: Mapping[str, str]) -> tuple[Finding, ...]:
    """The findings of merging the classes and those of the checks, in the order of the lines."""
    facts, kinds = gather_facts(finished), [file.kind for file in finished.files]
    checked = (
        *itertools.chain.from_iterable(check(facts) for check in checks(errors_only=finished.library.errors_only)),
        *missing_modules(finished.target, kinds, finished.library),
        *_inherited_missing_modules(finished, kinds),
    )
    fillings = fillings_of(finished)
    found = [
        *(finding for built in finished.classes.values() for finding in built.findings),
        *finished.neighbours.resolution.findings,
        *(one.with_source(facts.source) for one in checked),
        *report_lost_statements(finished, fillings),
        *report_redefined(finished, fillings),
    ]
    if not finished.library.errors_only:  # all of them are warnings
        found += [*report_changed_meanings(finished), *report_read_annotations(finished, texts)]
    return tuple(sorted(found, key=lambda finding: finding.sort_key))


def gather_facts(finished: FinishedConversion) -> Facts:
    """The conversion as the checks of rules read it."""
    target, renamed, library = finished.target, finished.renamed, finished.library
    seen = {dotted: _neighbour(dotted, one) for dotted, one in renamed.items()}
    originals = {dotted: one.neighbour.module for dotted, one in renamed.items()}
    # Assigned `None` only to leave the assignment of a neighbour in place.
    nothing = [name for name, one in target.module.definitions.items() if one.text.endswith("= None")]
    left = [name for name in nothing if any(part in name for part in library.settings.overriding_unless_none)]

    @functools.cache  # heirs have parents in common, and two rules ask
    def makers_of(dotted: str, name: str) -> list[tuple[str, ast.ClassDef]]:
        return [*_makers(name, originals[dotted], library)]

    def texts_of(name: str, parent: Parent | None, mentions: str) -> Iterator[str]:
        if parent is None:
            return _texts(name, target.module, mentions, library)
        definitions, module = renamed[parent.neighbour.dotted].definitions, originals[parent.neighbour.dotted]
        name = definitions.original(name).name if name in definitions else name
        return _texts(name, module, mentions, library)

    return Facts(
        path=target.path,
        read_source=lambda: finished.text,
        classes={name: _class(built, finished, seen) for name, built in finished.classes.items()},
        definitions={name: one for name, one in target.module.definitions.items() if name == one.name},
        imported=target.module.imported,
        exported=dict.fromkeys(target.module.exported),
        neighbours=tuple(seen.values()),
        files={one.kind: one.definitions for one in finished.files},
        exports_of=lambda neighbour: originals[neighbour.dotted].exported,
        attributes_of=lambda parent: _attributes(parent, renamed[parent.neighbour.dotted], library),
        makers_of=lambda parent: makers_of(parent.neighbour.dotted, parent.original),
        texts_of=texts_of,
        renamed=lambda parent, name: renamed[parent.neighbour.dotted].definitions.renamer.name(name),
        cased=target.cased,
        customary_names=[*library.settings.customary_names, *left],
        plan_names=library.settings.plan_names,
        class_lists=library.settings.class_lists,
        model_base=library.settings.model_base,
        replaced_dependency=library.settings.replaced_dependency,
    )


def _neighbour(dotted: str, renamed: RenamedNeighbour) -> NeighbourFacts:
    module, prefix = renamed.neighbour.module, renamed.prefix
    return NeighbourFacts(
        dotted,
        renamed.neighbour.path,
        module.definitions.keys(),
        prefix.cased,
        prefix.asked,
        prefix.collides_with,
        renamed.neighbour.model,
        renamed.sibling_renamer.old_cased,
        renamed.free_prefix,
    )


def _class(built: BuiltClass, finished: FinishedConversion, seen: Mapping[str, NeighbourFacts]) -> ClassFacts:
    statement, heir = built.statement, finished.heirs.get(built.name)
    if built.parent is None or heir is None:
        return ClassFacts(built.name, statement.text, statement.line)
    original = finished.neighbours.resolution.taken[heir.base].name
    above = tuple(_grandparents(original, finished.renamed[heir.source], finished.library))
    facts = seen[heir.source]
    asked = asked_prefix(built.name, original, finished.target.cased, facts.cased)
    parent = Parent(heir.base, original, built.parent.name, built.parent.text, facts, above, asked)
    is_apart = built.name in finished.neighbours.resolution.apart
    return ClassFacts(built.name, statement.text, statement.line, parent, is_apart)


def _grandparents(name: str, renamed: RenamedNeighbour, library: Library) -> Iterator[ImportedName]:
    module = renamed.neighbour.module
    for base in module.definitions[name].bases:
        imported = module.imported.get(base)
        found = neighbour_module(imported.module, library.settings) if imported else None
        if imported is not None and found is not None and found.model != renamed.neighbour.model:
            yield imported


def _attributes(parent: Parent, renamed: RenamedNeighbour, library: Library) -> KnownAttributes:
    """The names that a class and its ancestors bind, before and after renaming."""
    above = list(library.resolver.lineage(parent.original, renamed.neighbour.module))
    found = frozenset[str]().union(*(names_in_class(one.text) for one in above if one is not None))
    return KnownAttributes(found | renamed.definitions.renamer.names(found), None not in above)


def _makers(name: str, module: Module, library: Library) -> Iterator[tuple[str, ast.ClassDef]]:
    """See `Facts.makers_of`. A metaclass that does nothing where a class is made is left out."""
    settings = library.settings
    endings = tuple(filter(None, (settings.model_base, settings.config_suffix)))

    def is_of_library(name: str) -> bool:
        return name.endswith(endings) or name in settings.implied_bases

    for mentions in (INIT_SUBCLASS, METACLASS):
        for above in library.resolver.ancestors(name, module, mentions, is_of_library):
            one = above.statement
            if one is not None and above.home is not module and mentions in one.text:
                node = class_node(one.text)
                if mentions == INIT_SUBCLASS or library.resolver.makes_otherwise(metaclass_of(node), above.home):
                    yield mentions, node


def _texts(name: str, module: Module, mentions: str, library: Library) -> Iterator[str]:
    """See `Facts.texts_of`."""
    home, statement = library.resolver.statement(name, module, mentions)
    if statement is not None and statement.role is Role.CLASS:
        yield from (one.text for one in library.resolver.lineage(name, module, mentions) if one is not None)
    elif statement is not None:
        yield statement.text
        found = (home.definitions[one] for one in sorted(statement.uses & home.definitions.keys()))
        roles = {Role.FUNCTION, Role.CLASS} if statement.role is Role.ASSIGNMENT else {Role.FUNCTION}
        yield from (one.text for one in found if one.role in roles and one is not statement)


def _inherited_missing_modules(finished: FinishedConversion, kinds: Collection[str]) -> Iterator[Finding]:
    """A finding for each module that a neighbour imports from beside it and that is not beside the new model.

    Modules that the neighbour's own folder lacks are left out: the tree may be a part of a library.
    """
    target, library = finished.target, finished.library
    folder = os.path.dirname(target.path)
    bound = {name.bound for name in target.module.imported.values()}
    for dotted, renamed in finished.renamed.items():
        found: dict[str, Finding] = {}
        beside = renamed.neighbour.module.statements if not renamed.neighbour.package else ()
        for statement, name in ((one, name) for one in beside for name in relative_imports(one)):
            here, is_top = renamed.import_in_target(name), statement.role is Role.IMPORT
            if here.module in found or (is_top and here.bound in bound):
                continue
            there, path = _stem(name, os.path.dirname(renamed.neighbour.path), library), _stem(here, folder, library)
            if there == path:
                continue
            is_missing = not exists(path, here.name, library) and not is_given(path, target, kinds, library)
            if is_missing and exists(there, name.name, library) and _is_used(here, is_top, finished):
                place = f"{os.path.basename(renamed.neighbour.path)}:{statement.line}"
                instead = _instead(name, here, renamed) if is_top else ""
                imports = ((one.line, name.module) for one in target.module.statements for name in one.imports)
                line = next(line for line, module in imports if module == dotted)
                module = here.module if here.module.strip(".") else here.module + here.name
                found[here.module] = _missing(target, line, module, path, place, instead)
        bound |= {renamed.import_in_target(name).bound for name in renamed.neighbour.module.imported.values()}
        yield from found.values()


def _stem(name: ImportedName, folder: str, library: Library) -> str:
    """The file of a relative import in a file of `folder`, without its suffix; of `from . import x` that of `x`."""
    dots_only = not name.module.strip(".")
    return library.resolver.stem(f"{name.module}{name.name}" if dots_only else name.module, folder) or ""


def _is_used(name: ImportedName, is_top: bool, finished: FinishedConversion) -> bool:
    """Whether generated code reads the name of an import at the top of the module, or has the import in a body."""
    if not is_top:
        return any(f"from {name.module} import" in one.text for one in finished.definitions)
    return any(
        (name.bound in one.uses and name.bound in globals_read(one.text))
        or name.bound in names_in_annotations(one.text, {name.bound})
        for file in finished.files
        for one in finished.ordered[file.kind]
        if name.bound not in file.definitions
    )


def _instead(name: ImportedName, here: ImportedName, renamed: RenamedNeighbour) -> str:
    """The import that gives the modular file the same names as the neighbour's relative import."""
    beside = not name.module.startswith("..")
    module = f"..{os.path.basename(os.path.dirname(renamed.neighbour.path))}{name.module}" if beside else name.module
    alias = f" as {here.bound}" if here.bound != name.name else ""
    return f"from {module.rstrip('.') or name.module} import {name.name}{alias}"


MODEL, MODELS = 1, 2
"""The dots of an import from the folder of the model, and from the folder of models. A tree may lack the folders above.
"""


def missing_modules(target: ModularFile, kinds: Collection[str], library: Library) -> list[Finding]:
    """A finding for each module that a modular file imports and that neither exists nor will be generated.

    Imports that may fail, under `try` or a condition, are left out, as are neighbours, which the conversion looks for.

    Args:
        kinds: the kinds of file that it gives.
    """
    folder = os.path.dirname(target.path)
    found: dict[str, Finding] = {}
    for statement in target.module.statements:
        for name in relative_imports(statement):
            path = _path(name, folder, library)
            if path and not exists(path, name.name, library) and not is_given(path, target, kinds, library):
                found[name.module] = _missing(target, statement.line, name.module, path)
    return [*found.values()]


def exists(path: str, name: str, library: Library) -> bool:
    """Whether `from path import name` finds a file; `path` has no suffix."""
    in_folder = [os.path.join(path, one) for one in ("__init__.py", f"{name}.py")]  # of a package, and of any other
    return any(map(library.exists, [f"{path}.py", *in_folder, *(path + suffix for suffix in EXTENSION_SUFFIXES)]))


def is_given(path: str, target: ModularFile, kinds: Collection[str], library: Library) -> bool:
    """Whether a run generates a file, from this modular file or from another one."""
    kind, _ = split_stem(os.path.basename(path), library.settings) or ("", "")
    giver = modular_of(path, library.settings)
    return kind in kinds if giver == target.path else bool(giver) and library.exists(giver)


def _missing(target: ModularFile, line: int, module: str, path: str, *inherited: str) -> Finding:
    """The finding at a line of the modular file; `path` has no suffix. See `input_files.missing_module`."""
    looked = os.path.relpath(f"{path}.py", os.path.dirname(target.path)).replace(os.sep, "/")
    return input_files.missing_module(Location(target.path, line), module, looked, *inherited)


def _path(name: ImportedName, folder: str, library: Library) -> str:
    """The file of a relative import without its suffix; "" for an import from elsewhere, and for a neighbour."""
    names = name.module.lstrip(".")
    level = len(name.module) - len(names)
    if level not in (MODEL, MODELS) or not names or neighbour_module(name.module, library.settings):
        return ""
    if level == MODELS and names.partition(".")[0] in library.settings.no_models:
        return ""
    return library.resolver.stem(name.module, folder) or ""
