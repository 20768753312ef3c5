"""Top-level statements that no generated file would hold, and names that a module binds several times: nothing that an
author wrote vanishes without a finding.
"""

from __future__ import annotations

import ast
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence, Set

from modular_converter.convert.inherit.rename_neighbours import Neighbourhood, RenamedNeighbour
from modular_converter.convert.inline.collect import EmittedDefinition, GeneratedFiles
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.rename import RenamedModule
from modular_converter.findings import Finding, Location, locate_word
from modular_converter.model.bindings import FUNCTIONS, MUTATORS, bindings_of, covers, fills
from modular_converter.model.class_blocks import ClassChange, changes_below, parse_class
from modular_converter.model.module import DEFINITIONS, ImportedName, Module, Role, Statement, has_unread_names
from modular_converter.model.nodes import decorators_of, parse
from modular_converter.rules import double_meanings, lost_code


SHOWN = 60
"""The most characters of a statement that a finding quotes."""

_MAIN = re.compile("__name__ == '__main__'|'__main__' == __name__")


def report_lost_statements(neighbours: Neighbourhood, files: GeneratedFiles, library: Library) -> Iterator[Finding]:
    """An error for each statement of the modular file, and for each change of a neighbour's class, that would be lost."""
    target = neighbours.target
    text = library.text(target.path)
    rows = text.split("\n")
    used = frozenset[str]().union(*(one.uses for file in files.files for one in file.definitions.values()))
    own = {name for file in files.files for name, one in file.definitions.items() if one.origin.path == target.path}
    exports = target.module.definitions.get("__all__")
    if exports is not None and has_unread_names(exports.text):
        yield lost_code.computed_names(Location(target.path, exports.line))
    for statement in (one for one in target.module.statements if one is not exports):
        if _is_registration_lost(statement, target.module):
            yield lost_code.registered(Location(target.path, statement.line), statement.name)
        is_lost = statement.name not in own if statement.is_store else _is_lost(statement, own)
        if is_lost or (statement.role is Role.PROTECTED_IMPORT and _is_lost_with_imports(statement, used)):
            # The statement itself has the names of the generated files.
            first = (
                rows[statement.line - 1].strip() if statement.is_store else statement.text.lstrip().partition("\n")[0]
            )
            shown = first if len(first) <= SHOWN else first[:SHOWN] + "…"
            dotted, new = neighbours.taken.get(statement.name, ("", ""))
            definitions = neighbours.neighbours[dotted].definitions if dotted else None
            role = definitions.role(new) if definitions is not None and new in definitions else None
            place = Location(target.path, statement.line)
            if role is None:
                yield lost_code.lost_statement(place, shown)
            else:
                is_class = role is Role.CLASS
                yield lost_code.of_neighbours(place, shown, statement.name, is_class=is_class)
    yield from _changed_parents(neighbours, files, text)


def _changed_parents(neighbours: Neighbourhood, files: GeneratedFiles, text: str) -> Iterator[Finding]:
    """The neighbours' definitions in use that a statement apart from them changes: a class with an heir, whose body may
    set the same attribute, or what code outside of all definitions may change.
    """
    heirs: dict[tuple[str, str], list[Statement]] = {}
    for heir in neighbours.classes.values():
        if found := neighbours.parent_of(heir):
            heirs.setdefault(found[1:], []).append(heir)
    of_files = {name for file in files.files for name in file.definitions}
    copied = of_files - set(neighbours.classes)
    for dotted, renamed in neighbours.neighbours.items():
        module, rename = renamed.neighbour.module, renamed.definitions.renamer.name
        for line, changed in _changes(module):
            for one in changed:
                of_class = heirs.get((dotted, rename(one)), [])
                if of_class or rename(one) in copied:
                    place = f"{os.path.basename(renamed.neighbour.path)}:{line}"
                    where = locate_word(neighbours.target.path, of_class[0].name if of_class else one, text)
                    is_class = module.definitions[one].role is Role.CLASS
                    yield lost_code.in_neighbour(where, one, place, is_class=is_class)
        kept = {*of_files, *(name for neighbour, name in heirs if neighbour == dotted)}
        holders = {
            name for name, one in module.definitions.items() if one.role is not Role.CLASS and rename(name) in copied
        }
        left_out = [one for one in module.statements if rename(one.name) not in kept]
        lost = _lost_changes(module, holders, left_out) if holders else ()
        for holder, statement in (*_entries_displaced(renamed, copied, files), *lost):
            place = f"{os.path.basename(renamed.neighbour.path)}:{statement.line}"
            where = locate_word(neighbours.target.path, rename(statement.name), text)
            yield lost_code.in_neighbour(where, holder, place, is_class=False)
        for parent in (one for one in module.statements if one.role is Role.CLASS and one.joined):
            of_class = heirs.get((dotted, rename(parent.name)), [])
            is_shared = len(of_class) > 1 or rename(parent.name) in copied
            text_of_parent = renamed.definitions[rename(parent.name)].text if of_class else ""
            inherited = parse_class(text_of_parent).binds if of_class else frozenset()
            for change in changes_below(text_of_parent) if of_class else ():
                taken = {one.name: _leaves(one, change, inherited, renamed.definitions) for one in of_class}
                lacking = next((name for name, is_so in taken.items() if is_so is None), None)
                if lacking is None and is_shared and change.makes_object:
                    lacking = next((name for name, is_so in taken.items() if is_so), None)
                if lacking is not None:
                    place = f"{os.path.basename(renamed.neighbour.path)}:{_line_of(change, parent)}"
                    where = locate_word(neighbours.target.path, lacking, text)
                    yield lost_code.in_neighbour(
                        where, parent.name, place, is_class=True, is_bound_anew=change.binds_anew
                    )


def _leaves(heir: Statement, change: ClassChange, inherited: Set[str], parents: RenamedModule) -> bool | None:
    """See `ClassBlock.leaves`. What is called with the class may set a member of the heir, if it says its name, or cannot be
    read.
    """
    block = parse_class(heir.text)
    found = block.leaves(change, inherited)
    if found and change.decorator and block.binds:
        function = parents.get(change.decorator)
        return None if function is None or block.binds & {*re.findall(r"\w+", function.text)} else found
    return found


def _entries_displaced(
    renamed: RenamedNeighbour, copied: Collection[str], files: GeneratedFiles
) -> Iterator[tuple[str, Statement]]:
    """The functions and classes of a neighbour that are entered in a definition which comes along, but that others of the
    modular file take the place of; each with the name of that definition.
    """
    rename, path = renamed.definitions.renamer.name, renamed.neighbour.path
    for holder, names in renamed.neighbour.module.registered.items():
        for name in sorted(names) if rename(holder) in copied else ():
            emitted = (file.definitions[rename(name)] for file in files.files if rename(name) in file.definitions)
            if any(one.origin.path != path and one.origin.how != "merged" for one in emitted):
                yield holder, renamed.neighbour.module.definitions[name]


def _lost_changes(module: Module, holders: Set[str], left_out: Sequence[Statement]) -> Iterator[tuple[str, Statement]]:
    """The `holders` whose objects other definitions fill where they stand, though these are left out: by themselves or by a
    function that they call, as in `size = note(6)` in the body of a class. Each with the definition.
    """
    filled = re.compile(rf"\b({'|'.join(sorted(holders))})(?:\[|\.(?:{'|'.join(sorted(MUTATORS))})\()")

    def filled_by(parts: Sequence[ast.AST], text: str) -> set[str]:
        return {name for name in {*filled.findall(text)} if any(fills(part, name) for part in parts)}

    using = ((one.name, one.text) for one in module.statements if one.role is Role.FUNCTION and holders & one.uses)
    filling = {
        name: names for name, text in using if filled.search(text) and (names := filled_by([parse(text)], text))
    }
    for one in left_out:
        if one.role not in DEFINITIONS or one.uses.isdisjoint(filling.keys() | holders):
            continue
        if not one.uses.isdisjoint(filling) or filled.search(one.text):
            body = parse(one.text).body
            called = bindings_of(*body).calls_when_made & filling.keys()
            parts = [part for node in body for part in _run_at_once(node)]
            names = filled_by(parts, one.text).union(*(filling[name] for name in called))
            yield from ((name, one) for name in sorted(names))


def _run_at_once(node: ast.stmt) -> list[ast.AST]:
    """The parts of a definition that run where it stands: not the bodies of functions."""
    if isinstance(node, ast.ClassDef):
        return [part for inner in node.body for part in _run_at_once(inner)]
    if isinstance(node, FUNCTIONS):
        return [*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)]
    return [node]


def _line_of(change: ClassChange, statement: Statement) -> int:
    """The line of the file at which a change of a class stands."""
    row, line = [part for part in statement.joined if part[0] < change.node.lineno][-1]
    return line + change.node.lineno - 1 - row


def _changes(module: Module) -> Iterator[tuple[int, Sequence[str]]]:
    """The statements that may change definitions of which they are no part, such as `show(TABLE)`: the line of each, and the
    names of those that it may change.
    """
    for one in module.statements:
        if one.role is Role.OTHER:
            yield one.line, sorted(one.uses & module.definitions.keys()) if _is_lost(one) else []
        elif one.text.startswith("@") and not _is_last(one, module):
            yield one.line, sorted(module.registered_in(one))


def _is_last(statement: Statement, module: Module) -> bool:
    """Whether a definition is the one of its name that counts: the last one."""
    return module.definitions.get(statement.name) is statement


def _is_registration_lost(statement: Statement, module: Module) -> bool:
    """Whether the decorators of a definition may enter it somewhere whose name is defined again, as with `def _` twice below
    `@show.register`. An overload has no effect.
    """
    if not statement.text.startswith("@") or not statement.name or _is_last(statement, module):
        return False
    node = parse(statement.text).body[0]
    return any(one.rpartition(".")[2] != "overload" for one in decorators_of(node))


def _is_lost(statement: Statement, own: Collection[str] = ()) -> bool:
    """Whether no generated file holds a statement, and whether that makes a difference. See `_is_registration_lost`."""
    if statement.binds and not statement.imports and statement.role is Role.ASSIGNMENT and statement.name not in own:
        imported, nodes = {one.bound for one in statement.inner_imports}, parse(statement.text).body
        return not (_only_imports(nodes, imported) if imported else isinstance(nodes[-1], ast.Assign))
    if statement.role is not Role.OTHER:
        return False
    node = parse(statement.text).body[0]
    return not (_does_nothing(node) or _is_main(node))


def _is_lost_with_imports(statement: Statement, used: Collection[str]) -> bool:
    """Whether a protected import that is left out as unused has another effect: it calls, sets, or raises something.

    Names of its own imports may be set, as in `except ImportError: flash = None`.
    """
    bound = {name.bound for name in statement.imports}
    return bound.isdisjoint(used) and not _only_imports(parse(statement.text).body, bound)


def _only_imports(statements: Sequence[ast.AST], bound: Collection[str]) -> bool:
    """Whether statements do nothing but to bind these names."""
    for node in statements:
        if isinstance(node, (ast.If, ast.Try, ast.ExceptHandler)):
            inner = [one for one in ast.iter_child_nodes(node) if isinstance(one, (ast.stmt, ast.ExceptHandler))]
            if not _only_imports(inner, bound):
                return False
        elif isinstance(node, ast.Assign):
            if not all(isinstance(target, ast.Name) and target.id in bound for target in node.targets):
                return False
        elif not isinstance(node, (ast.Import, ast.ImportFrom)) and not _does_nothing(node):
            return False
    return True


def _does_nothing(node: ast.AST) -> bool:
    """Whether this is `pass`, a constant, `del` of a name, or an `if` over such statements, which is left where an import
    was.
    """
    if isinstance(node, ast.If):
        return all(map(_does_nothing, (*node.body, *node.orelse)))
    if isinstance(node, ast.Delete):
        return all(isinstance(target, ast.Name) for target in node.targets)
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _is_main(node: ast.stmt) -> bool:
    """Whether this is exactly `if __name__ == "__main__":`, whose body runs only in a script and does not belong to the
    model.
    """
    return isinstance(node, ast.If) and not node.orelse and _MAIN.fullmatch(ast.unparse(node.test)) is not None


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
                yield double_meanings.imported_again(place, name, file, line, kind, imported)
        for statement, user in used:
            for name in sorted(again & statement.uses):
                if lines := _made_between(module, statement, name):
                    place = there or Location(path, statement.line)
                    yield double_meanings.redefined(place, user, name, *(f"{file}:{line}" for line in lines))
    yield from _entered_above(neighbours, files, text)


def _entered_above(neighbours: Neighbourhood, files: GeneratedFiles, text: str) -> Iterator[Finding]:
    """A warning for each definition that reads a table when it is created, above what is entered in the table, but below
    that in a generated file, which has all functions above its classes.
    """
    target, entries = neighbours.target, _entries(neighbours)
    for file in files.files if entries else ():
        places = {one.name: place for place, one in enumerate(file.ordered)}
        for place, one in enumerate(file.ordered):
            for table in sorted(entries.keys() & one.uses & one.bindings.needs):
                path, line = _place_of_reading(one, table, neighbours)
                for entry, (entered, number) in entries[table].items():
                    is_below = number > line if path == entered else entered == target.path
                    if is_below and places.get(entry, place) < place:
                        stem = os.path.basename(path).removesuffix(".py")
                        where = Location(path, line) if path == target.path else locate_word(target.path, stem, text)
                        found = f"{os.path.basename(entered)}:{number}"
                        yield double_meanings.entered_above(where, one.name, table, entry, found)


def _place_of_reading(user: EmittedDefinition, table: str, neighbours: Neighbourhood) -> tuple[str, int]:
    """The file and line of the definition that reads a table: of a merged class, that of the parent or of the heir."""
    heir, resolution = neighbours.classes.get(user.name), neighbours.resolution
    base = resolution.parent(heir) if heir is not None and user.origin.how == "merged" else None
    if heir is not None and base and (parent := resolution.definition(base)):
        taken = resolution.taken[base].neighbour
        rename = neighbours.neighbours[taken].definitions.renamer.name
        if table in map(rename, bindings_of(parse(parent.text)).needs):
            return resolution.neighbours[taken].path, parent.line
    return user.origin.path, user.origin.line


def _entries(neighbours: Neighbourhood) -> dict[str, dict[str, tuple[str, int]]]:
    """What decorators enter in a definition: its new name -> the new name of each entry, with its file and line."""
    found: dict[str, dict[str, tuple[str, int]]] = {}
    target = neighbours.target
    sources = [
        (one.neighbour.path, one.neighbour.module, one.definitions.renamer) for one in neighbours.neighbours.values()
    ]
    for path, module, renamer in (*sources, (target.path, target.module, None)):
        rename = renamer.name if renamer is not None else str
        for table, names in module.registered.items():
            for name in sorted(names):
                found.setdefault(rename(table), {})[rename(name)] = path, module.definitions[name].line
    taken = {name for name, one in neighbours.resolution.taken.items() if name == one.name}
    for own in target.module.definitions.values():
        for _, module, renamer in sources if own.text.startswith("@") and taken & own.uses else ():
            for table in module.registered_in(own):
                found.setdefault(renamer.name(table), {})[own.name] = target.path, own.line
    return found


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
