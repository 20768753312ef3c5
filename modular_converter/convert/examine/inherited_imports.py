"""Imports that are taken over from a neighbour and fail in the new model, whose folder lacks the module."""

from __future__ import annotations

import os
from collections.abc import Iterator

from modular_converter.convert.emit.imports import names_in_annotations
from modular_converter.convert.examine.code import globals_read
from modular_converter.convert.inherit.missing_modules import exists, is_given, looked_for
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood, RenamedNeighbour
from modular_converter.convert.inline.generated import GeneratedFiles
from modular_converter.convert.source.library import Library
from modular_converter.facts.conversion import MissingModule
from modular_converter.model.index import relative_imports
from modular_converter.model.module import ImportedName, Role, Statement


def inherited_missing_modules(
    neighbours: Neighbourhood, files: GeneratedFiles, library: Library
) -> Iterator[MissingModule]:
    """The modules that a neighbour imports from beside it and that are not beside the new model, one for each module.

    Modules that the neighbour's own folder lacks are left out: the tree may be a part of a library.
    """
    target = neighbours.target
    folder = os.path.dirname(target.path)
    kinds = [file.kind for file in files.files]
    bound = {name.bound for name in target.module.imported.values()}
    for dotted, renamed in neighbours.neighbours.items():
        found: dict[str, MissingModule] = {}
        for statement, name in _relative_imports(renamed):
            here, is_top = renamed.import_in_target(name), statement.role is Role.IMPORT
            if here.module in found or (is_top and here.bound in bound):
                continue
            there, path = _stem(name, os.path.dirname(renamed.neighbour.path), library), _stem(here, folder, library)
            if there == path:
                continue
            is_missing = not exists(path, here.name, library) and not is_given(path, target, kinds, library)
            if is_missing and exists(there, name.name, library) and _is_used(here, is_top, files):
                place = f"{os.path.basename(renamed.neighbour.path)}:{statement.line}"
                instead = _instead(name, here, renamed) if is_top else ""
                line = next(one.line for one in target.module.statements if _imports_from(one.imports, dotted))
                module = here.module if here.module.strip(".") else here.module + here.name
                found[here.module] = MissingModule(module, looked_for(path, folder), line, place, instead)
        bound |= {renamed.import_in_target(name).bound for name in renamed.neighbour.module.imported.values()}
        yield from found.values()


def _relative_imports(renamed: RenamedNeighbour) -> Iterator[tuple[Statement, ImportedName]]:
    """The names that a neighbour imports from beside it, each with the statement that does."""
    for statement in renamed.neighbour.module.statements if not renamed.neighbour.package else ():
        yield from ((statement, name) for name in relative_imports(statement))


def _stem(name: ImportedName, folder: str, library: Library) -> str:
    """The file of a relative import in a file of `folder`, without its suffix; of `from . import x` that of `x`."""
    dots_only = not name.module.strip(".")
    return library.resolver.stem(f"{name.module}{name.name}" if dots_only else name.module, folder) or ""


def _imports_from(imports: tuple[ImportedName, ...], dotted: str) -> bool:
    return any(name.module == dotted for name in imports)


def _is_used(name: ImportedName, is_top: bool, files: GeneratedFiles) -> bool:
    """Whether generated code reads the name of an import at the top of the module, or has the import in a body."""
    if not is_top:
        return any(f"from {name.module} import" in one.text for file in files.files for one in file.ordered)
    return any(
        (name.bound in one.uses and name.bound in globals_read(one.text))
        or name.bound in names_in_annotations(one.text, {name.bound})
        for file in files.files
        for one in file.ordered
        if name.bound not in file.definitions
    )


def _instead(name: ImportedName, here: ImportedName, renamed: RenamedNeighbour) -> str:
    """The import that gives the modular file the same names as the neighbour's relative import."""
    beside = not name.module.startswith("..")
    module = f"..{os.path.basename(os.path.dirname(renamed.neighbour.path))}{name.module}" if beside else name.module
    alias = f" as {here.bound}" if here.bound != name.name else ""
    return f"from {module.rstrip('.') or name.module} import {name.name}{alias}"
