"""Top-level statements that no generated file would hold, and names that a module binds several times: nothing that an
author wrote vanishes without a finding.
"""

from __future__ import annotations

import ast
import builtins
import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set

from modular_converter.convert.examine.finished import FinishedConversion, HeirOfNeighbour
from modular_converter.convert.inherit.rename_neighbours import RenamedNeighbour
from modular_converter.convert.source.rename import RenamedModule
from modular_converter.facts import GeneratedDefinition
from modular_converter.findings import Finding, Location
from modular_converter.model.bindings import FUNCTIONS, MUTATORS, Bindings, bindings_of, covers
from modular_converter.model.class_blocks import ClassChange, changes_below, parse_class
from modular_converter.model.module import DEFINITIONS, ImportedName, Module, Role, Statement, has_unread_names
from modular_converter.model.nodes import decorators_of, parse, walk
from modular_converter.model.state import fills
from modular_converter.rules import double_meanings, lost_code


SHOWN = 60
"""The most characters of a statement that a finding quotes."""

_LOOKS = frozenset(name for kind in (str, list, dict, set) for name in dir(kind) if name[0] != "_").union(
    vars(builtins)
) - MUTATORS.union(("__import__", "delattr", "eval", "exec", "filter", "map", "next", "setattr"))
"""Functions, exceptions and methods of Python that change nothing where they are called."""

_MAIN = re.compile("__name__ == '__main__'|'__main__' == __name__")


def report_lost_statements(finished: FinishedConversion, fillings: Mapping[str, Filling]) -> Iterator[Finding]:
    """An error for each statement of the modular file, and for each change of a neighbour's class, that would be lost."""
    target, taken = finished.target, finished.neighbours.taken
    rows = finished.text.split("\n")
    used = frozenset[str]().union(*(one.uses for one in finished.definitions))
    own = {one.name for one in finished.definitions if finished.is_own(one)}
    exports = target.module.definitions.get("__all__")
    if exports is not None and has_unread_names(exports.text):
        yield lost_code.computed_names(Location(target.path, exports.line))
    for statement in (one for one in target.module.statements if one is not exports):
        if _is_registration_lost(statement, target.module):
            yield lost_code.registered(Location(target.path, statement.line), statement.name)
        is_lost = statement.name not in own if statement.is_store else _is_lost(statement, own)
        bound = {one.bound for one in statement.imports}
        is_left_out = statement.role is Role.PROTECTED_IMPORT and bound.isdisjoint(used)
        if is_lost or (is_left_out and not _only_imports(parse(statement.text).body, bound)):
            # The statement itself has the names of the generated files.
            first = (
                rows[statement.line - 1].strip() if statement.is_store else statement.text.lstrip().partition("\n")[0]
            )
            shown = first if len(first) <= SHOWN else first[:SHOWN] + "…"
            dotted, new = taken.get(statement.name, ("", ""))
            definitions = finished.renamed[dotted].definitions if dotted else {}
            place = Location(target.path, statement.line)
            if new not in definitions:
                yield lost_code.lost_statement(place, shown)
            else:
                is_class = definitions[new].role is Role.CLASS
                yield lost_code.of_neighbours(place, shown, statement.name, is_class=is_class)
    for source, renamed in finished.renamed.items():
        yield from _changed_parents(source, renamed, finished, fillings[source])


def _changed_parents(
    source: str, renamed: RenamedNeighbour, finished: FinishedConversion, filling: Filling
) -> Iterator[Finding]:
    """The definitions of a neighbour in use that a statement apart from them changes: a class with an heir, whose body may
    set the same attribute, or what code outside of all definitions may change.
    """
    module, rename = renamed.neighbour.module, renamed.definitions.renamer.name
    file = os.path.basename(renamed.neighbour.path)
    heirs: dict[str, list[Statement]] = {}
    for heir in finished.heirs.values():
        if heir.source == source:
            heirs.setdefault(heir.parent_name, []).append(heir.statement)
    of_files = {one.name for one in finished.definitions}
    copied = of_files - finished.classes.keys()
    changes = [(f"{file}:{line}", name) for line, changed in _changes(module) for name in changed]
    for place, name in (*changes, *_changes_by_others(renamed, finished)):
        of_class = heirs.get(rename(name), [])
        if of_class or rename(name) in copied:
            where = finished.at(of_class[0].name if of_class else name)
            is_class = module.definitions[name].role is Role.CLASS
            yield lost_code.in_neighbour(where, name, place, is_class=is_class)
    of_source = [heir for heir in finished.heirs.values() if heir.source == source]
    lost = _fillings_lost(renamed, of_source, finished, filling)
    for holder, statement in (*_entries_displaced(renamed, copied, finished), *lost):
        where = finished.at(rename(statement.name))
        yield lost_code.in_neighbour(where, holder, f"{file}:{statement.line}", is_class=False)
    for parent in (one for one in module.statements if one.role is Role.CLASS and one.joined):
        of_class = heirs.get(rename(parent.name), [])
        if not of_class:
            continue
        is_shared = len(of_class) > 1 or rename(parent.name) in copied
        text = renamed.definitions[rename(parent.name)].text
        inherited = parse_class(text).binds
        for change in changes_below(text):
            taken = {one.name: _leaves(one, change, inherited, renamed.definitions) for one in of_class}
            lacking = next((name for name, is_so in taken.items() if is_so is None), None)
            if lacking is None and is_shared and change.makes_object:
                lacking = next((name for name, is_so in taken.items() if is_so), None)
            if lacking is not None:
                where, place = finished.at(lacking), f"{file}:{parent.line_at(change.node.lineno - 1)}"
                anew = change.binds_anew
                yield lost_code.in_neighbour(where, parent.name, place, is_class=True, is_bound_anew=anew)


def _changes_by_others(renamed: RenamedNeighbour, finished: FinishedConversion) -> Iterator[tuple[str, str]]:
    """The definitions of a neighbour that statements of another one may change, such as `OldMLP.forward = fast`, or of another
    file that the modular file imports from, which may also enter them in a table; each with the place of the statement.
    """
    others = [one.neighbour.module for one in finished.renamed.values() if one is not renamed]
    for other in (*others, *_importers_beside(renamed, finished)):
        imported, folder = other.imported, os.path.dirname(other.path)
        for one in other.statements:
            is_store = one.role is Role.ASSIGNMENT and one.name in imported and not one.binds
            may_change = _is_lost(one) and (other in others or "setattr(" in one.text)
            for name in sorted({one.name} if is_store else one.uses & imported.keys() if may_change else ()):
                found = finished.library.resolver.definition(imported[name].module, imported[name].name, folder)
                if found is not None and found.path == renamed.neighbour.path:
                    names = [found.name] if found.name else one.uses & renamed.neighbour.module.definitions.keys()
                    yield from ((f"{os.path.basename(other.path)}:{one.line}", old) for old in sorted(names))


def _importers_beside(renamed: RenamedNeighbour, finished: FinishedConversion) -> Iterator[Module]:
    """The modules of the package that the modular file imports from and that import a neighbour, but are none themselves."""
    stem = os.path.basename(renamed.neighbour.path).removesuffix(".py")
    named = re.compile(rf"^(?:from|import)\s.*\b{stem}\b", re.MULTILINE)
    for path, text in finished.imported_beside.items():
        if stem in text and named.search(text):
            yield finished.library.module(path)


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
    renamed: RenamedNeighbour, copied: Collection[str], finished: FinishedConversion
) -> Iterator[tuple[str, Statement]]:
    """The functions and classes of a neighbour that are entered in a definition which comes along, but that others of the
    modular file take the place of; each with the name of that definition.
    """
    rename, path = renamed.definitions.renamer.name, renamed.neighbour.path
    apart = {finished.heirs[name].parent.name for name in finished.neighbours.resolution.apart}
    for holder, names in renamed.neighbour.module.registered.items():
        for name in sorted(names - apart) if rename(holder) in copied else ():
            emitted = (one for one in finished.definitions if one.name == rename(name))
            if any(one.origin.path != path and one.origin.how != "merged" for one in emitted):
                yield holder, renamed.neighbour.module.definitions[name]


class Filling:
    """Which of some globals, the holders, the functions of a module fill or count up when they are called, and other code at
    once.
    """

    def __init__(self, module: Module, holders: Set[str], rename: Callable[[str], str]) -> None:
        """`rename` gives the names that functions and holders have in generated code."""
        self._names = {new: name for name in sorted(holders) for new in (rename(name), name)}
        changing = "|".join(sorted(MUTATORS))
        self._filled = re.compile(rf"\b(?:(?:{'|'.join(self._names)})(?:\[|\.(?:{changing})\()|next\(|global )")
        functions = [one for one in module.statements if one.role is Role.FUNCTION] if holders else []
        given = {one.name: {*re.findall(r"\breturn (\w+)$", one.text, re.MULTILINE)} & holders for one in functions}
        given = {name: found for name, found in given.items() if found}
        found: dict[str, Set[str]] = {}
        known = -1
        while known < (known := sum(map(len, found.values()))):  # of functions that call each other
            for one in functions:
                if self._filled.search(one.text) or not one.uses.isdisjoint(found.keys() | given.keys()):
                    body = parse(one.text).body
                    found[one.name] = filled_by(body, bindings_of(*body), holders, found, given)
        self._functions = {new: names for name, names in found.items() if names for new in (name, rename(name))}
        self._found: dict[str, Sequence[Set[str]]] = {}

    def at_once(self, text: str) -> Sequence[Set[str]]:
        """The holders that each part of a statement fills where it stands: a statement, the default of a parameter."""
        if text not in self._found:
            self._found[text] = [*self._fill_at_once(text)]
        return self._found[text]

    def _fill_at_once(self, text: str) -> Iterator[Set[str]]:
        if self._names and (self._filled.search(text) or any(name in text for name in self._functions)):
            for part in (part for node in parse(text).body for part in _run_at_once(node)):
                found = {name for new, name in self._names.items() if new in text and fills(part, new)}
                found.update(*(self._functions.get(name, ()) for name in bindings_of(part).calls_now))
                if found:
                    yield found


def filled_by(
    parts: Sequence[ast.AST],
    scope: Bindings,
    holders: Set[str],
    functions: Mapping[str, Set[str]],
    given: Mapping[str, Set[str]],
) -> Set[str]:
    """The holders that a function fills: by itself, by functions that it calls, or where functions give them to it."""
    found = {name for name in holders & scope.module_names if any(fills(part, name) for part in parts)}
    for one in scope.everywhere:
        found |= one.declared_global & one.binds & holders
        found.update(*(functions.get(name, ()) for name in one.calls_now))
    return found.union(*(given[name] for name in scope.effects.changes & given.keys()))


def _run_at_once(node: ast.stmt) -> list[ast.AST]:
    """The parts of a definition that run where it stands: not the bodies of functions."""
    called = getattr(node, "decorator_list", ())
    decorators = [one if isinstance(one, ast.Call) else ast.Call(one, [], []) for one in called]
    if isinstance(node, ast.ClassDef):
        return [*decorators, *(part for inner in node.body for part in _run_at_once(inner))]
    if isinstance(node, FUNCTIONS):
        return [*decorators, *node.args.defaults, *filter(None, node.args.kw_defaults)]
    return [node]


def fillings_of(finished: FinishedConversion) -> Mapping[str, Filling]:
    """What fills those definitions of each neighbour that come along; by the neighbour as the modular file names it."""
    copied = {one.name for one in finished.definitions} - finished.classes.keys()
    found: dict[str, Filling] = {}
    for source, renamed in finished.renamed.items():
        module, rename = renamed.neighbour.module, renamed.definitions.renamer.name
        names = module.definitions.items()
        holders = {name for name, one in names if one.role is not Role.CLASS and rename(name) in copied}
        found[source] = Filling(module, holders, rename)
    return found


def _fillings_lost(
    renamed: RenamedNeighbour, heirs: Collection[HeirOfNeighbour], finished: FinishedConversion, filling: Filling
) -> Iterator[tuple[str, Statement]]:
    """The definitions that come along and that other ones of the neighbour fill where they stand, as in `size = note(6)` in the
    body of a class, though these are left out, or of which an heir leaves a part out. Each with the other one.
    """
    rename = renamed.definitions.renamer.name
    known = {one.name for one in finished.definitions} | {rename(one.parent.name) for one in heirs}
    for one in renamed.neighbour.module.statements:
        if one.role in DEFINITIONS and rename(one.name) not in known or one.role is Role.OTHER and _is_lost(one):
            found = frozenset[str]().union(*filling.at_once(one.text)) - {one.name}
            yield from ((name, one) for name in sorted(found))
    for heir in heirs:
        theirs = filling.at_once(heir.parent.text)
        if not theirs:
            continue
        own, made = (filling.at_once(one.text) for one in (heir.statement, finished.classes[heir.statement.name]))
        if len(theirs) + len(own) > len(made):
            yield min(theirs[0]), heir.parent


def _changes(module: Module) -> Iterator[tuple[int, Sequence[str]]]:
    """The statements that may change definitions of which they are no part, such as `show(TABLE)`: the line of each, and the
    names of those that it may change.
    """
    for one in module.statements:
        if one.role is Role.OTHER:
            may_change = _is_lost(one) and not _only_looks(one, module)
            yield one.line, sorted(one.uses & module.definitions.keys()) if may_change else []
        elif one.text.startswith("@") and not _is_last(one, module):
            yield one.line, sorted(module.registered_in(one))


def _only_looks(statement: Statement, module: Module) -> bool:
    """Whether a statement, such as an assertion, sets nothing, and calls nothing but what changes nothing."""
    nodes = walk(*parse(statement.text).body)
    looks = _LOOKS - module.definitions.keys() - module.imported.keys()
    called = (one.func for one in nodes if isinstance(one, ast.Call))
    stores = (one for one in nodes if isinstance(one, (ast.Attribute, ast.Subscript)))
    is_read = all(isinstance(one.ctx, ast.Load) for one in stores)
    return is_read and all(getattr(one, "id", getattr(one, "attr", "")) in looks for one in called)


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
    # The body of `if __name__ == "__main__":` runs only in a script, and does not belong to the model.
    is_main = isinstance(node, ast.If) and not node.orelse and _MAIN.fullmatch(ast.unparse(node.test))
    return not (is_main or _does_nothing(node))


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


def report_redefined(finished: FinishedConversion, fillings: Mapping[str, Filling]) -> Iterator[Finding]:
    """Names with another meaning than in their own module. A warning for each definition that reads, when it is
    created, a name that gets another value below it; an error for a name that is imported below another meaning of it.
    """
    target = finished.target
    modules = {one.neighbour.path: one.neighbour.module for one in finished.renamed.values()}
    users: dict[tuple[str, int], str] = {}
    for path, module in (modules | {target.path: target.module}).items():
        again, below = _defined_again(module), _imported_again(module)
        if not again and not below:
            continue
        users = users or _users(finished)
        file = os.path.basename(path)
        used = [(one, user) for one in module.statements if (user := users.get((path, one.line)))]
        for name, (line, kind, imported) in below.items():
            if any(name in (*one.uses, one.name) for one, _ in used):
                place = _place_in(path, imported, finished)
                yield double_meanings.imported_again(place, name, file, line, kind, imported)
        for statement, user in used:
            for name in sorted(again & statement.uses):
                if lines := _made_between(module, statement, name):
                    place = _place_in(path, statement.line, finished)
                    yield double_meanings.redefined(place, user, name, *(f"{file}:{line}" for line in lines))
    yield from _entered_above(finished)
    for source, renamed in finished.renamed.items():
        yield from _filled_in_other_order(renamed, finished, fillings[source])


def _filled_in_other_order(
    renamed: RenamedNeighbour, finished: FinishedConversion, filling: Filling
) -> Iterator[Finding]:
    """A warning for each definition that fills another one, such as a counter, where it stands, below one that does so
    further down in the neighbour.
    """
    path = renamed.neighbour.path
    users = _users(finished)
    for definitions in finished.ordered.values():
        places = {one.name: place for place, one in enumerate(definitions)}
        above: dict[str, tuple[int, Statement]] = {}
        for one in reversed(renamed.neighbour.module.statements):
            user = users.get((path, one.line), "")
            for holder in sorted(frozenset[str]().union(*filling.at_once(one.text))) if user in places else ():
                first, entry = above.get(holder, (places[user], one))
                if first < places[user]:
                    found = f"{os.path.basename(path)}:{entry.line}"
                    where = _place_in(path, one.line, finished)
                    yield double_meanings.entered_above(where, user, holder, definitions[first].name, found)
                else:
                    above[holder] = places[user], one


def _place_in(path: str, line: int, finished: FinishedConversion) -> Location:
    """A line of the modular file, or for one of a neighbour the first place that names it."""
    if path == finished.target.path:
        return Location(path, line)
    return finished.at(os.path.basename(path).removesuffix(".py"))


def _entered_above(finished: FinishedConversion) -> Iterator[Finding]:
    """A warning for each definition that reads a table when it is created, above what is entered in the table, but below
    that in a generated file, which has all functions above its classes.
    """
    entries = _entries(finished)
    for definitions in finished.ordered.values() if entries else ():
        places = {one.name: place for place, one in enumerate(definitions)}
        for place, one in enumerate(definitions):
            for table in sorted(entries.keys() & one.uses & one.bindings.needs):
                path, line = _place_of_reading(one, table, finished)
                for entry, (entered, number) in entries[table].items():
                    is_below = number > line if path == entered else entered == finished.target.path
                    if is_below and places.get(entry, place) < place:
                        where, found = _place_in(path, line, finished), f"{os.path.basename(entered)}:{number}"
                        yield double_meanings.entered_above(where, one.name, table, entry, found)


def _place_of_reading(user: GeneratedDefinition, table: str, finished: FinishedConversion) -> tuple[str, int]:
    """The file and line of the definition that reads a table: of a merged class, that of the parent or of the heir."""
    if finished.merged(user):
        heir = finished.heirs[user.name]
        renamed = finished.renamed[heir.source]
        if table in map(renamed.definitions.renamer.name, bindings_of(parse(heir.parent.text)).needs):
            return renamed.neighbour.path, heir.parent.line
    return user.origin.path, user.origin.line


def _entries(finished: FinishedConversion) -> dict[str, dict[str, tuple[str, int]]]:
    """What decorators enter in a definition: its new name -> the new name of each entry, with its file and line."""
    found: dict[str, dict[str, tuple[str, int]]] = {}
    target = finished.target
    kept: Callable[[str], str] = str
    sources = [
        (one.neighbour.path, one.neighbour.module, one.definitions.renamer.name) for one in finished.renamed.values()
    ]
    for path, module, rename in (*sources, (target.path, target.module, kept)):
        for table, names in module.registered.items():
            for name in sorted(names):
                found.setdefault(rename(table), {})[rename(name)] = path, module.definitions[name].line
    taken = {name for name, one in finished.neighbours.resolution.taken.items() if name == one.name}
    for own in target.module.definitions.values():
        for _, module, rename in sources if own.text.startswith("@") and taken & own.uses else ():
            for table in module.registered_in(own):
                found.setdefault(rename(table), {})[own.name] = target.path, own.line
    return found


def _users(finished: FinishedConversion) -> dict[tuple[str, int], str]:
    """File and line of each definition that generated code comes from -> the generated name."""
    users = {(one.origin.path, one.origin.line): one.name for one in finished.definitions}
    for name, heir in finished.heirs.items():
        users[finished.renamed[heir.source].neighbour.path, heir.parent.line] = name
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
    for node in parse(statement.text).body:
        if any(covers(name, path) for path in bindings_of(node).effects.writes):
            yield statement.line_at(node.lineno - 1)


def _defined_again(module: Module) -> frozenset[str]:
    """The names to which several statements of a module give a value."""
    made = [one for one in module.statements if one.role in DEFINITIONS]
    times = Counter(one.name for one in made)
    changed = (name for one in made if one.joined for name in {one.name, *one.binds})
    return frozenset({name for name, number in times.items() if number > 1}.union(changed))
