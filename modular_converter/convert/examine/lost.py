"""Top-level statements that no generated file would hold: nothing that an author wrote vanishes without a finding."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterator, Sequence

from modular_converter.convert.inherit.rename_neighbours import Neighbourhood
from modular_converter.convert.inline.generated import GeneratedFiles
from modular_converter.convert.source.library import Library
from modular_converter.findings import Finding, Location, locate_word
from modular_converter.model.module import Module, Role, Statement, has_unread_names
from modular_converter.model.nodes import parse, walk
from modular_converter.rules import lost_statement


SHOWN = 60
"""The most characters of a statement that a finding quotes."""
_MAIN = re.compile("__name__ == '__main__'|'__main__' == __name__")
_HEADING = re.compile(r"^(?:async\s+def|def|class)\b", re.MULTILINE)


def report_lost_statements(neighbours: Neighbourhood, files: GeneratedFiles, library: Library) -> Iterator[Finding]:
    """An error for each statement of the modular file, and for each change of a neighbour's class, that would be lost."""
    target = neighbours.target
    text = library.text(target.path)
    rows = text.split("\n")
    used = frozenset[str]().union(*(one.uses for file in files.files for one in file.definitions.values()))
    own = {name for file in files.files for name, one in file.definitions.items() if one.origin.path == target.path}
    for statement in target.module.statements:
        if _is_registration_lost(statement, target.module, own):
            yield lost_statement.registered(Location(target.path, statement.line), statement.name).with_source(text)
        is_lost = statement.name not in own if statement.is_store else _is_lost(statement, own)
        if is_lost or (statement.role is Role.PROTECTED_IMPORT and _is_lost_with_imports(statement, used)):
            changed = statement.name if statement.name in neighbours.classes else ""
            # The statement itself has the names of the generated files.
            first = (
                rows[statement.line - 1].strip() if statement.is_store else statement.text.lstrip().partition("\n")[0]
            )
            shown = first if len(first) <= SHOWN else first[:SHOWN] + "…"
            place, role = Location(target.path, statement.line), _taken_role(statement.name, neighbours)
            if role is None:
                yield lost_statement.diagnose(place, shown, changed).with_source(text)
            else:
                is_class = role is Role.CLASS
                yield lost_statement.of_neighbours(place, shown, statement.name, is_class=is_class).with_source(text)
    exports = target.module.definitions.get("__all__")
    if exports is not None and has_unread_names(exports.text):
        yield lost_statement.computed_names(Location(target.path, exports.line)).with_source(text)
    yield from _changed_parents(neighbours, files, text)


def _taken_role(name: str, neighbours: Neighbourhood) -> Role | None:
    """The definition behind a name that the modular file imports from a neighbour; None for any other name."""
    dotted, new = neighbours.taken.get(name, ("", ""))
    definitions = neighbours.neighbours[dotted].definitions if dotted else None
    return definitions.role(new) if definitions is not None and new in definitions else None


def _changed_parents(neighbours: Neighbourhood, files: GeneratedFiles, text: str) -> Iterator[Finding]:
    """The neighbours' classes in use that a statement below them changes, where no heir sets the same attribute."""
    heirs: dict[tuple[str, str], list[Statement]] = {}
    for heir in neighbours.classes.values():
        if found := neighbours.parent_of(heir):
            heirs.setdefault(found[1:], []).append(heir)
    copied = {name for file in files.files for name in file.definitions} - set(neighbours.classes)
    for dotted, renamed in neighbours.neighbours.items():
        module = renamed.neighbour.module
        for statement in module.statements:
            if statement.role is not Role.OTHER and not statement.text.startswith("@"):
                continue
            own = renamed.definitions.renamer.name(statement.name)
            if _is_last(statement, module) and (own in copied or (dotted, own) in heirs):
                continue
            for changed in _changed_by(statement, module):
                name = renamed.definitions.renamer.name(changed)
                attribute = _attribute(statement)
                lacking = [heir for heir in heirs.get((dotted, name), []) if attribute not in heir.uses]
                if lacking or name in copied:
                    place = f"{os.path.basename(renamed.neighbour.path)}:{statement.line}"
                    where = locate_word(neighbours.target.path, lacking[0].name if lacking else changed, text)
                    is_class = module.definitions[changed].role is Role.CLASS
                    yield lost_statement.in_neighbour(where, changed, place, is_class=is_class).with_source(text)


def _changed_by(statement: Statement, module: Module) -> Sequence[str]:
    """The definitions that a statement outside of all definitions may change, such as `TABLE.append(i)` in a loop."""
    if statement.role is Role.OTHER and statement.name:
        return [statement.name]
    if statement.role is Role.OTHER:
        return sorted(statement.uses & module.definitions.keys()) if _is_lost(statement) else []
    return _registered_in(statement, module)


def _is_last(statement: Statement, module: Module) -> bool:
    """Whether a statement is the definition of its name that counts: the last one."""
    return statement.role is not Role.OTHER and module.definitions.get(statement.name) is statement


def _is_registration_lost(statement: Statement, module: Module, own: set[str]) -> bool:
    """Whether the decorators of a definition enter it somewhere, but no generated file has it: it is not used by its
    name, or the name is defined again, as with `def _` twice below `@show.register`. An overload has no effect.

    Args:
        own: the names of the module's definitions that generated files have.
    """
    if not statement.text.startswith("@") or not statement.name:
        return False
    if _is_last(statement, module):
        return statement.name not in own and not own.isdisjoint(_registered_in(statement, module))
    (node,) = parse(statement.text).body
    decorators = [ast.unparse(one) for one in getattr(node, "decorator_list", ())]
    return any(one.rpartition(".")[2] != "overload" for one in decorators)


def _registered_in(statement: Statement, module: Module) -> Sequence[str]:
    """The globals in which the decorators of a definition enter it: `@register` with `TABLE[name] = function` in it.

    `@show.register` enters it in `show`.
    """
    holders = {name: one for name, one in module.definitions.items() if one.role is not Role.CLASS}
    lines = _HEADING.split(statement.text, maxsplit=1)[0]  # parsing each decorated class would take long
    if holders.keys().isdisjoint(re.findall(r"\w+", lines)):
        return []
    (node,) = parse(statement.text).body
    parts = list(walk(*getattr(node, "decorator_list", ())))
    found = {one.value.id for one in parts if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name)}
    for one in parts:
        if isinstance(one, ast.Name) and one.id in holders and holders[one.id].role is Role.FUNCTION:
            found |= {name for name in holders[one.id].uses & holders.keys() if holders[name].role is Role.ASSIGNMENT}
    return sorted(found & holders.keys())


def _attribute(statement: Statement) -> str:
    """The attribute that `Class.attribute = …` sets, "" for another change."""
    targets = getattr(parse(statement.text).body[0], "targets", [])
    return targets[0].attr if len(targets) == 1 and isinstance(targets[0], ast.Attribute) else ""


def _is_lost(statement: Statement, own: Collection[str] = ()) -> bool:
    """Whether no generated file holds a statement, and whether that makes a difference. See `_is_registration_lost`."""
    if statement.inner_imports and statement.name not in own:
        return not _only_imports(parse(statement.text).body, {one.bound for one in statement.inner_imports})
    if statement.role is Role.PROTECTED_IMPORT:
        return any(map(_defines, ast.walk(parse(statement.text))))
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
    """Whether this is `pass`, a constant, or an `if` over such statements, which is left where an import was."""
    if isinstance(node, ast.If):
        return all(map(_does_nothing, (*node.body, *node.orelse)))
    return isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _defines(node: ast.AST) -> bool:
    return isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))


def _is_main(node: ast.stmt) -> bool:
    """Whether this is exactly `if __name__ == "__main__":`, whose body runs only in a script and does not belong to the
    model.
    """
    return isinstance(node, ast.If) and not node.orelse and _MAIN.fullmatch(ast.unparse(node.test)) is not None
