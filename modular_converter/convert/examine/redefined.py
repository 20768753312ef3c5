"""Names that a module binds several times: a generated file has the last definition alone, and its imports on top."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

from modular_converter.convert.inherit.rename_neighbours import Neighbourhood
from modular_converter.convert.inline.generated import GeneratedFiles
from modular_converter.convert.source.library import Library
from modular_converter.findings import Finding, Location, locate_word
from modular_converter.model.bindings import bindings_of, covers
from modular_converter.model.module import DEFINITIONS, ImportedName, Module, Statement
from modular_converter.model.nodes import parse
from modular_converter.rules import double_meanings


def report_redefined(neighbours: Neighbourhood, files: GeneratedFiles, library: Library) -> Iterator[Finding]:
    """Names with another meaning than in their own module. A warning for each definition that reads, when it is
    created, a name that gets another value below it; an error for a name that is imported below another meaning of it.
    """
    target, resolution = neighbours.target, neighbours.resolution
    text = library.text(target.path)
    modules = {one.path: one.module for one in resolution.neighbours.values()} | {target.path: target.module}
    users: dict[tuple[str, int], str] = {}
    for path, module in modules.items():
        again, below = _defined_again(module), _imported_again(module)
        if not again and not below:
            continue
        users = users or _users(neighbours, files)
        stem, file = os.path.splitext(os.path.basename(path))[0], os.path.basename(path)
        there = None if path == target.path else locate_word(target.path, stem, text)
        used = [(one, user) for one in module.statements if (user := users.get((path, one.line)))]
        for name, (line, kind, imported) in below.items():
            if any(name in (*one.uses, one.name) for one, _ in used):
                place = there or Location(path, imported)
                yield double_meanings.imported_again(place, name, file, line, kind, imported).with_source(text)
        for statement, user in used:
            for name in sorted(again & statement.uses):
                if lines := _made_between(module, statement, name):
                    place = there or Location(path, statement.line)
                    yield double_meanings.redefined(place, user, name, file, *lines).with_source(text)


def _users(neighbours: Neighbourhood, files: GeneratedFiles) -> dict[tuple[str, int], str]:
    """File and line of each definition that generated code comes from -> the generated name."""
    resolution = neighbours.resolution
    emitted = (one for file in files.files for one in file.definitions.values())
    users = {(one.origin.path, one.origin.line): one.name for one in emitted}
    for heir in neighbours.classes.values():
        base = resolution.parent(heir)
        if base and (parent := resolution.definition(base)):
            users[resolution.neighbours[resolution.taken[base].neighbour].path, parent.line] = heir.name
    return users


def _imported_again(module: Module) -> dict[str, tuple[int, str, int]]:
    """The names that a module imports below another meaning, which generated code would use. Name -> the line of that
    meaning, whether it is a definition or an import, and the line of the last import.
    """
    defined = {one.name: one.line for one in module.statements if one.role in DEFINITIONS}
    imports: dict[str, list[tuple[int, tuple[str, str]]]] = {}
    for statement in module.statements:
        for one in statement.imports:
            imports.setdefault(one.bound, []).append((statement.line, _origin(one)))
    found: dict[str, tuple[int, str, int]] = {}
    for name, places in imports.items():
        (first, origin), (last, _) = places[0], places[-1]
        if name in defined:
            if last > defined[name]:
                found[name] = defined[name], "definition", last
        elif (last, origin) not in places:
            found[name] = first, "import", last
    return found


def _origin(imported: ImportedName) -> tuple[str, str]:
    """The object that an import binds; `import a` and `import a.b` bind the same name to the same package."""
    if imported.name or imported.asname:
        return imported.module, imported.name
    return imported.bound, ""


def _made_between(module: Module, user: Statement, name: str) -> tuple[int, int] | None:
    """The line of the definition of a name that counts when `user` is created, and the line of the last definition, if
    they differ.
    """
    lines = [line for one in module.statements for line in _lines_that_bind(name, one)]
    before = [line for line in lines if line < user.line]
    if before and lines[-1] > user.line and name in bindings_of(parse(user.text)).needs:
        return before[-1], lines[-1]
    return None


def _lines_that_bind(name: str, statement: Statement) -> Iterator[int]:
    """The lines on which a definition and the changes joined to it give a name or its object another value: `N = 1`, `N
    += 1`, `N.append(2)`.
    """
    if statement.role not in DEFINITIONS or name not in {statement.name, *statement.binds}:
        return
    if not statement.joined:
        yield statement.line
        return
    parts = [(0, statement.line), *statement.joined]
    for node in parse(statement.text).body:
        if any(covers(name, path) for path in bindings_of(node).effects.writes):
            row, line = next(part for part in reversed(parts) if part[0] < node.lineno)
            yield line + node.lineno - 1 - row


def _defined_again(module: Module) -> frozenset[str]:
    """The names to which several statements of a module give a value."""
    made = [one for one in module.statements if one.role in DEFINITIONS]
    times = Counter(one.name for one in made)
    changed = (name for one in made if one.joined for name in {one.name, *one.binds})
    return frozenset({name for name, number in times.items() if number > 1}.union(changed))
