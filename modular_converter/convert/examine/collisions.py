"""What renaming may get wrong in inherited code, which it takes as text.

Two names may become one: beside `llama_loss`, there is an `emu_loss` in the code already. And a word that other code
than the model's reads may have had another meaning than the model's name: a string that a function of another library
gets, bytes, a method of an object that need not be the model's (`x.clip(0, 1)` in a model that sets `self.clip`).

And what is one class with inheritance may be two: a neighbour's class that a generated file imports for the child's code,
and also holds as a copy for inherited code; an heir, whose instances are no instances of its parent. An object that code fills is two where two generated files hold
it.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import NamedTuple

from modular_converter.convert.examine.faults import compile_error, globals_read, top_level_names
from modular_converter.convert.examine.finished import FinishedConversion
from modular_converter.convert.examine.meanings import Change, find_changes
from modular_converter.convert.examine.top_level import filled_by
from modular_converter.convert.inherit.rename_neighbours import OwnModels, RenamedNeighbour, is_outside, words_outside
from modular_converter.convert.source.library import Library
from modular_converter.convert.source.rename import Renamer
from modular_converter.facts import GeneratedDefinition
from modular_converter.findings import Finding
from modular_converter.model.lexer import QUOTED_WORD
from modular_converter.model.module import Module, Role, Statement
from modular_converter.model.nodes import dotted, is_super, parse, tested_classes, walk
from modular_converter.model.state import remembers
from modular_converter.rules import double_meanings, renamed_words
from modular_converter.rules._words import name_heirs


def report_changed_meanings(finished: FinishedConversion) -> list[Finding]:
    """One warning for each name with two meanings and each source whose code gets the wrong one, for each class beside
    its copy, for each two names that become one, and for each word that other code reads.
    """
    changes: dict[tuple[str, str, str], list[Change]] = {}
    for change in find_changes(finished):
        changes.setdefault((change.name, str(change.wanted), str(change.found)), []).append(change)
    derived = _derived_definitions(finished)
    return [
        *(_changed_meaning(same, finished) for same in changes.values()),
        *_not_imported(finished),
        *_copied_classes(finished),
        *_lost_parents(finished),
        *_left_out_heirs(finished, derived),
        *_types_of_heirs(finished, derived),
        *_held_twice(finished),
        *_name_collisions(finished, derived),
        *_renamed_words(finished, derived),
    ]


def _changed_meaning(changes: Sequence[Change], finished: FinishedConversion) -> Finding:
    """The warning for a name that several definitions use in the same wrong way."""
    first, found = changes[0], changes[0].found.statement
    is_own = not first.wanted.source and not first.wanted.imported
    if is_own and first.name in {first.user.name, *first.user.bindings.binds}:
        return double_meanings.displaced(finished.at(first.name), first.name, str(first.found))
    return double_meanings.changed_meaning(
        finished.place_of(first.user, first.name),
        first.name,
        list(dict.fromkeys(one.user.name for one in changes)),
        str(first.wanted),
        str(first.found),
        is_class=found is not None and found.role is Role.CLASS,
        becomes=found.name if found is not None else first.name,
        naming=_naming(first.wanted.source, finished),
    )


def _naming(dotted: str, finished: FinishedConversion) -> str:
    """Advice for names of a neighbour's heirs, so that its copies get names of their own; "" if it has no heirs."""
    taken = finished.neighbours.resolution.taken
    parent = next((taken[one.base].name for one in finished.heirs.values() if one.source == dotted), "")
    if not parent:
        return ""
    renamed = finished.renamed[dotted]
    return name_heirs(dotted, renamed.free_prefix, renamed.sibling_renamer.old_cased, parent)


def _not_imported(finished: FinishedConversion) -> Iterator[Finding]:
    """The names that a class reads, and that only the module of its parent has: Python would not find them."""
    imported = (new for _, new in finished.neighbours.taken.values())
    known = finished.target.module.names.union(vars(builtins), imported)
    for name, heir in finished.heirs.items():
        renamed, own = finished.renamed[heir.source], heir.statement
        imports = map(renamed.import_in_target, renamed.neighbour.module.imported.values())
        lacking = (own.uses - known) & {*renamed.definitions, *(one.bound for one in imports)}
        lacking = lacking & globals_read(own.text) if lacking else lacking
        bound = top_level_names(finished.text) if lacking else None
        for word in sorted(lacking - bound) if bound is not None else ():
            yield double_meanings.not_imported(finished.at(word, own.line), word, name, heir.source)


class _DerivedDefinition(NamedTuple):
    """A definition of a generated file that is copied from a neighbour, or inherits from one."""

    definition: GeneratedDefinition
    neighbour: str
    original: Statement
    """The neighbour's definition before renaming."""


def _derived_definitions(finished: FinishedConversion) -> list[_DerivedDefinition]:
    """The definitions that come from neighbours, in the order of the files."""
    written = {
        (source, one.line): one
        for source, renamed in finished.renamed.items()
        for one in renamed.neighbour.module.statements
        if one.name
    }
    found: list[_DerivedDefinition] = []
    for definition in finished.definitions:
        source = finished.source_of(definition)
        if definition.origin.how == "copied":
            original = written.get((source, definition.origin.line))
        else:
            original = finished.heirs[definition.name].parent if source else None
        if original is not None:
            found.append(_DerivedDefinition(definition, source, original))
    return found


BYTES = re.compile(r"""(?<!\w)(?:[bB][rR]?|[rR][bB])["']""")
INSTANCES = ("self", "cls")
"""The names of the first parameter, by which methods of the model are looked up."""


def _renamed_words(finished: FinishedConversion, derived: Iterable[_DerivedDefinition]) -> Iterator[Finding]:
    """The words for other code in the definitions of the generated files, each once for a definition."""

    def worded(old: str, new: str, where: str, user: GeneratedDefinition) -> Finding:
        return renamed_words.renamed_for_others(finished.place_of(user), old, new, where, user.name)

    foreign: dict[str, frozenset[str]] = {}  # what each imports from outside of the models, its own package included
    for source, one in finished.renamed.items():
        own, imported = OwnModels.of(one.neighbour, finished.library), one.neighbour.module.imported.values()
        foreign[source] = frozenset(name.bound for name in imported if is_outside(name, own))
    for definition, source, original in derived:
        renamed = finished.renamed[source]
        for old, new, name in _renamed_keys(definition, original, renamed, finished.library):
            yield worded(old, new, name, definition)
        if not _may_hold_words(original.text, original.uses & foreign[source], renamed.neighbour.model):
            continue
        renamer = renamed.definitions.renamer
        changed = [
            (node, words)
            for node in _parts(original.text)
            if (words := dict(_changed_words(node, foreign[source], renamed.neighbour.module, renamer)))
        ]
        left = {*map(ast.unparse, _parts(definition.text))} if changed else set()
        for node, words in changed:
            if ast.unparse(parse(renamer.code(ast.unparse(node))).body[0]) in left:
                at = ast.unparse(node)  # `NewT = TypeVar("NewT")` names itself
                yield from (worded(old, new, at, definition) for old, new in words.items() if new != definition.name)


def _renamed_keys(
    definition: GeneratedDefinition, original: Statement, renamed: RenamedNeighbour, library: Library
) -> Iterator[tuple[str, str, str]]:
    """The model's name in quotes and its new form, where something that the definition uses has the same word in quotes:
    a key, a mode; with the name of that. An attribute that has it as its value names the model.
    """
    old = renamed.neighbour.model
    new = renamed.definitions.renamer.name(old)
    if new == old or old not in QUOTED_WORD.findall(original.text) or new not in QUOTED_WORD.findall(definition.text):
        return
    nodes = walk(parse(original.text))
    values = {id(node.value) for node in nodes if isinstance(node, (ast.Assign, ast.AnnAssign))}
    if not any(isinstance(one, ast.Constant) and one.value == old and id(one) not in values for one in nodes):
        return
    imports = [one for bound, one in renamed.neighbour.module.imported.items() if bound in original.uses]
    for name, words in words_outside(renamed.neighbour, imports, library):
        if old in words:
            yield old, new, name


def _may_hold_words(text: str, foreign: frozenset[str], model: str) -> bool:
    """A quick test, since parsing all definitions takes long."""
    if model not in text.lower():
        return False
    named = rf"(?i:{re.escape(model)})"
    calls = re.finditer(rf"\.\w*{named}\w*\(", text)
    if any(_first_name(text[: call.start()]) not in INSTANCES for call in calls):
        return True
    return bool((foreign or BYTES.search(text)) and re.search(rf"""["'][^"'\s]*{named}[^"'\s]*["']""", text))


def _first_name(text: str) -> str:
    """The first name of the path that ends a text: `self` of `return self.model`."""
    path = re.match(r"[\w.]*", text[::-1])
    return path[0][::-1].partition(".")[0] if path else ""


def _parts(text: str) -> list[ast.Call | ast.Constant]:
    """The calls and bytes of a definition."""
    nodes = (node for node in walk(parse(text)) if isinstance(node, (ast.Call, ast.Constant)))
    return [node for node in nodes if isinstance(node, ast.Call) or isinstance(node.value, bytes)]


def _changed_words(
    node: ast.Call | ast.Constant, foreign: frozenset[str], module: Module, renamer: Renamer
) -> Iterator[tuple[str, str]]:
    """The words of a call, or of bytes, that other code reads and renaming changes, each with its new form."""
    for word, is_method in _words(node, foreign):
        new = renamer.name(word)
        if new != word and not (is_method and _is_of_model(node, module)):
            yield word, new


def _words(node: ast.Call | ast.Constant, foreign: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """The words of a call or of bytes, each with whether it is the name of the called method."""
    if isinstance(node, ast.Constant):
        yield node.value.decode("latin-1") if isinstance(node.value, bytes) else "", False
        return
    if isinstance(node.func, ast.Attribute):
        yield node.func.attr, True
    if dotted(node.func).partition(".")[0] in foreign:
        given = (*node.args, *(keyword.value for keyword in node.keywords))
        words = (one.value for one in given if isinstance(one, ast.Constant))
        yield from ((word, False) for word in words if isinstance(word, str) and not re.search(r"\s", word))


def _is_of_model(call: ast.expr, module: Module) -> bool:
    """Whether a called method is one that a class of the model defines, or is looked up in the instance or a class."""
    function = call.func if isinstance(call, ast.Call) else None
    if not isinstance(function, ast.Attribute):
        return False
    receiver = function.value
    root = dotted(receiver).partition(".")[0]
    if root in INSTANCES or root in module.names or (isinstance(receiver, ast.Call) and is_super(receiver.func)):
        return True
    defines = re.compile(rf"^[ \t]+(?:async )?def {re.escape(function.attr)}\b", re.MULTILINE)
    return any(defines.search(one.text) for one in module.statements)


def _held_twice(finished: FinishedConversion) -> Iterator[Finding]:
    """The objects that several generated files hold, each with the first definition that changes one or looks for one."""
    files: dict[str, list[str]] = {}
    for file in finished.files:
        for name in file.definitions:
            files.setdefault(name, []).append(file.name)
    twice = frozenset(name for name, of in files.items() if len(of) > 1)
    classes = {one.name for one in finished.definitions if one.role is Role.CLASS}
    told, remembering = set[str](), _remembering(finished, twice)
    for one in finished.definitions if twice else ():
        holders = (twice if one.role is Role.FUNCTION else twice - {one.name}) - told
        if holders.isdisjoint({*one.uses, one.name}):
            continue
        body = parse(one.text).body
        changed = filled_by(body, one.bindings, holders, {}, {})
        changed |= {name for name in holders if any(path.startswith(f"{name}.") for path in one.bindings.bound_paths)}
        changed |= holders & remembering & one.bindings.module_names - {one.name}
        looked_for = _compared_as_objects(body) | {name for name in classes & holders if _tests_for(one.text, name)}
        for name in sorted(changed | (holders & looked_for)):
            told.add(name)
            is_same = name not in changed
            yield double_meanings.held_twice(finished.at(name), name, one.name, files[name], is_same=is_same)


def _remembering(finished: FinishedConversion, names: Set[str]) -> Set[str]:
    """Those of the names of definitions that hold what remembers something from one use to the next."""
    texts = {one.name: one.text for one in finished.definitions}

    def find(name: str) -> ast.AST | None:
        return next(iter(parse(texts.get(name, "")).body), None)

    return {name for name in names if remembers(getattr(one := find(name), "value", one), find)}


def _compared_as_objects(nodes: Sequence[ast.AST]) -> set[str]:
    """The names beside `is` and `is not`."""
    compared = [node for node in walk(*nodes) if isinstance(node, ast.Compare)]
    objects = (node for node in compared if {ast.Is, ast.IsNot} & {*map(type, node.ops)})
    return {side.id for node in objects for side in (node.left, *node.comparators) if isinstance(side, ast.Name)}


def _name_collisions(finished: FinishedConversion, derived: Iterable[_DerivedDefinition]) -> Iterator[Finding]:
    """The names that become one in the code of one definition, or at the top level of a neighbour; each once."""
    seen: set[tuple[str, str]] = set()
    for definition, source, original in derived:
        renamed = finished.renamed[source]
        module = renamed.neighbour.module
        rename = renamed.definitions.renamer.name
        for old in sorted(old for old in original.uses if rename(old) != old):
            new = rename(old)
            if new not in definition.uses or (source, old) in seen:
                continue
            is_global = old in module.names and new in module.names
            is_same = is_global or (new in original.uses and new not in module.names)
            if is_same and compile_error(definition.text) is None:  # two parameters of one name are MC501
                seen.add((source, old))
                yield renamed_words.renamed_into(finished.at(source), definition.name, old, new, source)
        if renamed.neighbour.model in original.text:
            left = QUOTED_WORD.findall(definition.text)
            quoted = {*QUOTED_WORD.findall(original.text)}
            for old in sorted(one for one in quoted if rename(one) in quoted - {one} and rename(one) in left):
                yield renamed_words.renamed_into(
                    finished.at(source), definition.name, f'"{old}"', f'"{rename(old)}"', source
                )


def _copied_classes(finished: FinishedConversion) -> Iterator[Finding]:
    """The classes that a file both imports and copies, each with its first user."""
    for name, (source, new) in finished.neighbours.taken.items():
        renamed = finished.renamed[source]
        if name == new or new not in renamed.definitions or renamed.definitions.role(new) is not Role.CLASS:
            continue
        for file in finished.files:
            copy = file.definitions.get(new)
            if copy is None or copy.origin.how != "copied" or copy.origin.path != renamed.neighbour.path:
                continue
            own = (one for one in finished.ordered[file.kind] if finished.is_own(one) and name in one.uses)
            user = next((one for one in own if name in globals_read(one.text)), None)
            if user is not None:
                yield double_meanings.copied(finished.at(name, user.origin.line), user.name, name, new, source)


def _lost_parents(finished: FinishedConversion) -> Iterator[Finding]:
    """The parents that code of the modular file tests or catches, each with its first user and heir."""
    first_heirs: dict[str, str] = {}
    for name, one in finished.heirs.items():
        first_heirs.setdefault(one.base, name)
    own = [one for one in finished.definitions if finished.is_own(one)]
    for parent, heir in first_heirs.items():
        asking = (one for one in own if parent in one.uses and _tests_for(one.text, parent, heir))
        user = next((one for one in asking if parent in globals_read(one.text)), None)
        if user is not None:
            place, source = finished.at(parent, user.origin.line), finished.heirs[heir].source
            yield double_meanings.parent_lost(place, user.name, parent, heir, source)


def _left_out_heirs(finished: FinishedConversion, derived: Iterable[_DerivedDefinition]) -> Iterator[Finding]:
    """The heirs that inherited code no longer finds where it asks for their parent, for which another class stands, and for
    which it does not ask itself.
    """
    heirs = {name: one for name, one in finished.written_heirs.items() if one.parent_name != name}
    seen = set[str]()
    for definition, source, original in derived if heirs else ():
        own = finished.heirs.get(definition.name)
        for name, heir in heirs.items():
            written = heir.parent.name
            asked = definition.name if own is not None and own.parent is heir.parent else heir.parent_name
            if heir.source != source or name in seen or written not in original.uses:
                continue
            is_asked = _tests_for(original.text, written) and _tests_for(definition.text, asked)
            if is_asked and not _tests_for(definition.text, name, heir.base):
                seen.add(name)
                place = finished.at(name, heir.statement.line)
                yield double_meanings.heir_left_out(place, definition.name, asked, name)


def _types_of_heirs(finished: FinishedConversion, derived: Iterable[_DerivedDefinition]) -> Iterator[Finding]:
    """The heirs whose very type inherited code asks for, `type(x) is NewMLP`, where it asked for their parent's; each once."""
    heirs = {name: one for name, one in finished.written_heirs.items() if one.parent_name == name}
    for name, heir in heirs.items():
        asking = (
            one.definition
            for one in derived
            if one.neighbour == heir.source
            and heir.parent.name in one.original.uses
            and _tests_for(one.original.text, heir.parent.name, of_type=True)
            and _tests_for(one.definition.text, name, of_type=True)
        )
        if (user := next(asking, None)) is not None:
            yield double_meanings.type_of_heir(finished.at(name, heir.statement.line), user.name, heir.base, name)


def _tests_for(text: str, name: str, beside: str = "", *, of_type: bool = False) -> bool:
    """Whether a definition asks whether something is of a class, and not of the class `beside` too, or of the very type."""
    found = (named for named, is_type in _asked_classes(text) if is_type or not of_type)
    return any(name in named and beside not in named for named in found)


def _asked_classes(text: str) -> Iterator[tuple[set[str], bool]]:
    """The names in each place that asks for a class: `isinstance`, `except`, `case`, `type(x) is`; with whether it asks for a
    type itself.
    """
    nodes = walk(parse(text))
    places = [(asked, False) for asked in tested_classes(nodes)]
    for node in (one for one in nodes if isinstance(one, ast.Compare)):
        sides = (node.left, *node.comparators)
        called = [dotted(one.func) if isinstance(one, ast.Call) else getattr(one, "attr", "") for one in sides]
        places += [({one: one}, not {"type", "__class__"}.isdisjoint(called)) for one in sides]
    yield from (({one.id for one in walk(*asked) if isinstance(one, ast.Name)}, is_type) for asked, is_type in places)
