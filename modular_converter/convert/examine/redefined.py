"""Definitions of one name in one module: a generated file has the last alone, and code between them was made with another."""

from __future__ import annotations

import ast
import os
import warnings
from collections import Counter
from collections.abc import Iterator

from modular_converter.convert.inherit.rename_neighbours import Neighbourhood
from modular_converter.convert.inline.generated import GeneratedFiles
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.module import DEFINITIONS, Module, Statement
from modular_converter.diagnostics import Diagnostic, Location, locate_word
from modular_converter.facts.nodes import children
from modular_converter.rules import changed_meaning


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def report_redefined(neighbours: Neighbourhood, files: GeneratedFiles, library: Library) -> Iterator[Diagnostic]:
    """A warning for each generated definition that reads, when it is made, a name that is defined again below it."""
    target, resolution = neighbours.target, neighbours.resolution
    text = library.text(target.path)
    modules = {one.path: one.module for one in resolution.neighbours.values()} | {target.path: target.module}
    doubled = {path: names for path, module in modules.items() if (names := _defined_again(module))}
    if not doubled:
        return
    emitted = [one for file in files.files for one in file.definitions.values()]
    users = {(one.origin.path, one.origin.line): one.name for one in emitted}
    for heir in neighbours.classes.values():
        base = resolution.parent(heir)
        if base and (parent := resolution.definition(base)):
            users[resolution.neighbours[resolution.taken[base].neighbour].path, parent.line] = heir.name
    for path, names in doubled.items():
        for statement in modules[path].statements:
            user = users.get((path, statement.line), "")
            for name in sorted(names & statement.uses) if user else ():
                lines = [one.line for one in modules[path].statements if one.name == name and one.role in DEFINITIONS]
                before = [line for line in lines if line < statement.line]
                if before and lines[-1] > statement.line and name in _read_at_once(statement):
                    stem = os.path.splitext(os.path.basename(path))[0]
                    place = (
                        Location(path, statement.line) if path == target.path else locate_word(target.path, stem, text)
                    )
                    found = changed_meaning.redefined(place, user, name, os.path.basename(path), before[-1], lines[-1])
                    yield found.with_source(text)


def _defined_again(module: Module) -> frozenset[str]:
    """The names that several definitions of a module have."""
    times = Counter(one.name for one in module.statements if one.role in DEFINITIONS)
    return frozenset(name for name, number in times.items() if number > 1)


def _read_at_once(statement: Statement) -> frozenset[str]:
    """The names that a definition reads when it is made: in decorators, bases, defaults and values, not in bodies."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        waiting: list[ast.AST] = [ast.parse(statement.text)]
    found: set[str] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, _SCOPES):
            waiting += [
                *getattr(node, "decorator_list", ()),
                *node.args.defaults,
                *filter(None, node.args.kw_defaults),
            ]
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.add(node.id)
        waiting += children(node)
    return frozenset(found)
