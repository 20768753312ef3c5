"""The reason why a name in a generated text is undefined, and its cure. Imported only when there is such a name."""

from __future__ import annotations

import ast
import re

from modular_converter.convert.examine.definitions import binding_below, parsed
from modular_converter.convert.examine.faults import top_level_names
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood
from modular_converter.convert.inherit.resolve import ResolvedImports, open_target, resolve_imports
from modular_converter.convert.source.library import Library
from modular_converter.findings import ConversionError, did_you_mean
from modular_converter.model.members import SUPER_KWARGS
from modular_converter.model.module import Role


def cure(
    name: str, definition: str, line: int, text: str, resolution: ResolvedImports | None, library: Library
) -> str:
    """The cure for `name` on line `line` of a generated text, in its top-level `definition`."""
    method = _method_at(definition, line, text)
    if name == SUPER_KWARGS:
        return f"The parent's parameters take the place of `**{name}`. Name the parameter that you mean."
    if name == definition or binding_below(name, line, text):
        written = resolution.target.module.definitions.get(definition) if resolution else None
        if method and written is not None and not re.search(rf"\bdef {method}\b", written.text):
            return f'Override the inherited method `{method}`, with the annotation `"{name}"` in quotes.'
        above = "" if name == definition else "; otherwise define it above its use"
        return f'If it is an annotation, write `"{name}"` in quotes{above}.'
    if resolution is not None:
        if method and name in _parent_parameters(definition, method, resolution):
            return (
                f"It is a parameter of the parent's `{method}`, but not of the override. "
                f"Add it to the signature, or end the signature with `**super_kwargs`."
            )
        if name in resolution.taken:
            neighbour, asked = resolution.neighbours[resolution.taken[name].neighbour], resolution.taken[name].name
            if asked not in neighbour.module.names:
                hint = did_you_mean(asked, neighbour.module.definitions)
                return f"{hint}`{neighbour.dotted}` has no `{asked}`. Correct the import, or define `{name}` yourself."
        for neighbour in resolution.neighbours.values():
            if name in neighbour.module.definitions:
                return f"Import it: `from {neighbour.dotted} import {name}`."
        for neighbour in resolution.neighbours.values():
            names = top_level_names(library.text(neighbour.path))
            if names is not None and name in names:
                return (
                    f"`{neighbour.dotted}` binds it in a statement that is not carried along (under `if`, `for` or "
                    f"`with`, say). Define `{name}` in the modular file."
                )
    hint = did_you_mean(name, (top_level_names(text) or frozenset()) - {name})
    return f"{hint}Import or define `{name}` in the modular file."


def guarded_import(name: str, line: int, text: str, neighbours: Neighbourhood | None) -> tuple[str, int, str] | None:
    """For a `name` in the condition of an import on a line of a generated text: the module with the import, "" for the
    modular file; its line there; and the cure. None for any other name.

    Imports stand above all definitions, so a condition may only use what is imported.
    """
    if neighbours is None or not any(_guards(node, line) for node in parsed(text).body):
        return None
    renamed = [
        (dotted, one.neighbour.module, one.definitions.renamer) for dotted, one in neighbours.neighbours.items()
    ]
    for dotted, module, renamer in (("", neighbours.target.module, None), *renamed):
        for statement in module.statements:
            tested = {renamer.name(one) if renamer else one for one in statement.condition}
            if statement.role is Role.PROTECTED_IMPORT and name in tested:
                bound = "`, `".join(dict.fromkeys(one.bound for one in statement.imports))
                cure = (
                    f"Import `{bound}` in the modular file, in place of `{dotted}`, under a condition without `{name}`."
                    if dotted
                    else f"Imports stand above all definitions: write the value of `{name}` into the condition itself."
                )
                return dotted, statement.line, cure
    return None


def _guards(node: ast.stmt, line: int) -> bool:
    """Whether a line is within a statement that makes imports depend on a condition."""
    if not (isinstance(node, (ast.If, ast.Try)) and node.lineno <= line <= (node.end_lineno or 0)):
        return False
    return any(isinstance(one, (ast.Import, ast.ImportFrom)) for one in ast.walk(node))


def parent_for(name: str, module: str, neighbours: Neighbourhood | None) -> tuple[str, str] | None:
    """The module and the name in a neighbour's folder that renaming would turn into `name` of the sibling `module`."""
    for dotted, renamed in neighbours.neighbours.items() if neighbours else ():
        for imported in renamed.neighbour.module.imported.values():
            target = renamed.import_in_target(imported)
            if (target.module, target.name) == (module, name) and imported.module.startswith("."):
                return dotted.rpartition(".")[0] + imported.module, imported.name
    return None


def _method_at(definition: str, line: int, text: str) -> str:
    """The method of a class in which a line of a generated text stands, "" for none."""
    methods = (
        method
        for node in parsed(text).body
        if isinstance(node, ast.ClassDef) and node.name == definition
        for method in node.body
        if isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef))
    )
    return next((one.name for one in methods if one.lineno <= line <= (one.end_lineno or 0)), "")


def _parent_parameters(definition: str, method: str, resolution: ResolvedImports) -> set[str]:
    """The parameters that a method has in the parent of a class of the modular file."""
    statement = resolution.target.module.definitions.get(definition)
    base = resolution.parent(statement) if statement else None
    parent = resolution.definition(base) if base else None
    return {
        argument.arg
        for node in ast.walk(parsed(parent.text if parent else ""))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == method
        for argument in ast.walk(node.args)
        if isinstance(argument, ast.arg)
    }


def resolution_of(path: str, library: Library) -> ResolvedImports | None:
    """The neighbours of a modular file; None where they cannot be found."""
    try:
        return resolve_imports(open_target(path, library), library)
    except ConversionError:
        return None
