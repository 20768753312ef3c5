"""Split a module into top-level statements with their text. No syntax tree leaves this file."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, astuple, fields, replace
from typing import Any

from modular_converter.findings import character_column
from modular_converter.model.bindings import EVERYTHING, FUNCTIONS, bindings_of
from modular_converter.model.module import DEFINITIONS, ImportedName, Module, Role, Statement
from modular_converter.model.nodes import decorators_of, parse, running_parts, top_line, walk, walk_until, written


NOBODYS = "_"
"""The name of functions that nobody calls by it."""
_RELATIVE_IMPORT = re.compile(r"from[ \t]*\.")  # matches in strings, too


def index_module(text: str, path: str) -> Module:
    """Split `text` into its statements.

    Raises:
        SyntaxError: `text` is not Python, as raised by `ast.parse` (for a null byte, `ValueError` before 3.12).
    """
    body = parse(text, path).body
    lines = text.split("\n")
    first = first_line(body[0], lines) if body else len(lines) + 1
    header = whole_lines(lines, 0, first - 1)
    previous = first - 1
    if body and is_docstring(body[0]):
        previous, body = body[0].end_lineno or 0, body[1:]
    statements: list[Statement] = []
    for position, node in enumerate(body):
        start = first_line(node, lines)
        limit = first_line(body[position + 1], lines) - 1 if position + 1 < len(body) else len(lines)
        end = end_with_footer(lines, node.end_lineno or start, limit, 0)
        lead = whole_lines(lines, previous, start - 1)
        statements.append(_statement(node, _text(node, lines[start - 1 : end]), start, lead))
        previous = max(end, previous)
    return Module(path, header, tuple(_attach_stores(_defining_blocks(statements))))


def _defining_blocks(statements: list[Statement]) -> list[Statement]:
    """The statements, in which blocks are definitions of all names that they bind, or whose objects they change.

    `try: import fast; HAS_FAST = True` has to stand in its order among the assignments of `HAS_FAST`, and `if USE_FAST:
    import fast` below that of `USE_FAST`; a block that does nothing but import can stand with the imports.
    """
    defined = {one.name for one in statements if one.role in DEFINITIONS}
    while True:
        blocks = [one for one in statements if _is_definition(one, defined)]
        if not blocks:
            return statements
        made = {id(one): _as_definition(one, defined) for one in blocks}
        statements = [made.get(id(one), one) for one in statements]
        defined.update(*(one.binds for one in made.values()))


def _is_definition(block: Statement, defined: set[str]) -> bool:
    if block.role is Role.OTHER:
        return bool(block.binds) or not block.changes.isdisjoint(defined)
    imported = {one.bound for one in block.imports}
    used = block.binds | block.needs | block.changes
    return block.role is Role.PROTECTED_IMPORT and not (block.binds <= imported and defined.isdisjoint(used))


def _as_definition(block: Statement, defined: set[str]) -> Statement:
    """A block under the name of a flag that it sets, or else of a module that it imports, as other code may, too."""
    binds = block.binds | (block.changes & defined)
    flags = binds - {one.bound for one in block.imports}
    name = min(flags or binds, default="")
    return replace(
        block,
        role=Role.ASSIGNMENT,
        name=name,
        binds=binds,
        imports=(),
        inner_imports=block.imports,
        rebinds_import=bool(block.imports) and not flags,
    )


def _text(node: ast.stmt, rows: list[str]) -> str:
    """The text of a statement in its lines, without others that semicolons part from it."""
    if not hasattr(node, "body"):
        last = (node.end_lineno or node.lineno) - node.lineno
        end = character_column(rows[last], node.end_col_offset or 0)
        behind = rows[last][end:].lstrip()
        if behind[:1] == ";" and behind.strip("; \t")[:1] not in ("", "#"):
            rows[last] = rows[last][:end]
    rows[0] = rows[0][character_column(rows[0], node.col_offset) :]
    return "\n".join(rows)


def _attach_stores(statements: list[Statement]) -> list[Statement]:
    """Join each change of a global to the definition that it changes, so that both are copied together. `TABLE["x"] =
    f`, `TABLE.update(…)`, `Norm.calls = 0` and `helper = wrap(helper)` change a definition above them. A store into an
    imported global becomes a definition of its name.
    """
    attached: list[Statement] = []
    places: dict[str, int] = {}
    imported: set[str] = set()
    for statement in statements:
        if statement.binds and not statement.imports and statement.binds.isdisjoint(places):
            places.update(dict.fromkeys(statement.names_bound, len(attached)))
            attached.append(statement)
            continue
        if statement.binds and not statement.imports:
            attached = _with_block(attached, statement)
            defined = (at for at, one in enumerate(attached) if one.role in DEFINITIONS)
            places = {name: at for at in defined for name in attached[at].names_bound}
            continue
        imported.update(one.bound for one in statement.imports)
        place = places.get(statement.name) if statement.name else None
        if place is not None and (statement.role is Role.OTHER or _rebinds(statement)):
            attached[place] = _joined(attached[place], statement)
            continue
        if statement.name in imported and _rebinds(statement):
            statement = replace(statement, rebinds_import=True)
        if statement.role is Role.OTHER and statement.name and not _binds_nothing(statement):
            statement = replace(statement, role=Role.ASSIGNMENT, is_store=True)
        if statement.role in DEFINITIONS:
            places[statement.name] = len(attached)
        attached.append(statement)
    return attached


def _joined(whole: Statement, one: Statement) -> Statement:
    """A definition with a statement below it, which changes it or binds a name of it anew."""
    begins = (whole.text.count("\n") + 1, one.line - one.lead.count("\n"))
    later = tuple((begins[0] + one.lead.count("\n") + at, line) for at, line in one.joined)
    return replace(
        whole,
        text=f"{whole.text}\n{one.lead}{one.text}",
        joined=(*whole.joined, begins, *later),
        binds=whole.names_bound | one.names_bound if one.binds else whole.binds,
        inner_imports=(*whole.inner_imports, *one.inner_imports),
        is_store=whole.is_store and one.is_store,
    )


def _with_block(above: list[Statement], block: Statement) -> list[Statement]:
    """The statements with a block that defines names: joined with the definitions of these names above it, in its place,
    or in that of the first of them where that is a class or a statement between them reads the names at once.
    """
    joined = [one for one in above if one.role in DEFINITIONS and not one.names_bound.isdisjoint(block.binds)]
    if not joined:
        return [*above, block]
    if len(joined) > 1 and any(one.role is Role.CLASS for one in joined):  # a class is a definition of its own
        if not block.changes.isdisjoint(block.binds):  # `logger.info(…)` in a block that binds the class anew
            return _with_block(above, replace(block, binds=block.binds - block.changes, changes=frozenset()))
        return [*above, replace(block, role=Role.OTHER, name="", binds=frozenset())]
    whole = functools.reduce(_joined, (*joined[1:], block), joined[0])
    first = next(at for at, one in enumerate(above) if one is joined[0])
    between = [one for one in above[first:] if not any(one is other for other in joined)]
    rest = [one for one in above if not any(one is other for other in joined)]
    if whole.role is Role.CLASS or any(
        not bindings_of(parse(one.text)).needs.isdisjoint(whole.binds) for one in between if one.uses & whole.binds
    ):
        return [*rest[:first], whole, *rest[first:]]
    return [*rest, whole]


def _rebinds(statement: Statement) -> bool:
    """Whether an assignment uses the old value of its name: `helper = torch.compile(helper)`."""
    if statement.role is not Role.ASSIGNMENT or statement.is_store:
        return False
    value = getattr(parse(statement.text).body[0], "value", None)
    return value is not None and any(
        isinstance(node, ast.Name) and node.id == statement.name for node in ast.walk(value)
    )


def _binds_nothing(statement: Statement) -> bool:
    return isinstance(parse(statement.text).body[0], (ast.Expr, ast.Delete, *FUNCTIONS))


def first_line(node: ast.stmt, lines: list[str]) -> int:
    """The line of a statement's first token, decorators included; `lines` are those that the node counts in."""
    line = top_line(node)
    while line < node.lineno and not lines[line - 1].lstrip().startswith("@"):  # `@(` on a line of its own
        line -= 1
    return line


def end_with_footer(lines: list[str], end: int, limit: int, column: int) -> int:
    """The end of a statement with the comments below it that are indented deeper.

    Args:
        end: the number of lines up to the statement's own end.
        limit: the number of lines up to the next statement.
        column: the statement's indentation.
    """
    last = end
    for number in range(end, limit):
        stripped = lines[number].lstrip()
        if stripped.startswith("#") and len(lines[number]) - len(stripped) > column:
            last = number + 1
        elif stripped.strip():
            break
    return last


def whole_lines(lines: list[str], start: int, end: int) -> str:
    """The lines `start` to `end` (half-open, from 0), each with a newline."""
    return "".join(line + "\n" for line in lines[start:end])


def is_docstring(node: ast.stmt) -> bool:
    """Whether the statement is a string by itself."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _statement(node: ast.stmt, text: str, line: int, lead: str) -> Statement:
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return Statement(Role.IMPORT, "", text, line, lead, imports=imported_names(node))
    if isinstance(node, ast.ClassDef):
        bases = tuple(written(one.value if isinstance(one, ast.Subscript) else one) for one in node.bases)
        return Statement(Role.CLASS, node.name, text, line, lead, bases=bases)
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        holder = _entered_in(node) if node.name == NOBODYS else ""
        return Statement(Role.OTHER if holder else Role.FUNCTION, holder or node.name, text, line, lead)
    if isinstance(node, (ast.If, ast.Try)):
        imports = tuple(name for child in _imports_in(node) for name in imported_names(child))
        if imports:
            tests = [one.test for one in ast.walk(node) if isinstance(one, ast.If)]
            condition = frozenset(one.id for one in walk(*tests) if isinstance(one, ast.Name))
            found = bindings_of(node)
            if found.binds <= {one.bound for one in imports}:
                found = bindings_of(*running_parts(node))  # for type checkers alone, it rebinds nothing
            block = Statement(Role.PROTECTED_IMPORT, "", text, line, lead, imports=imports, condition=condition)
            return replace(block, binds=found.binds - {EVERYTHING}, needs=found.needs, changes=_changes(node))
    name, changed = assigned_name(node), _stored_into(node)
    if name or changed or isinstance(node, ast.Expr):
        return Statement(Role.ASSIGNMENT if name else Role.OTHER, name or changed, text, line, lead)
    binds = bindings_of(node).binds - set(_passing_names(node))
    return Statement(Role.OTHER, "", text, line, lead, binds=binds, changes=_changes(node))


def _entered_in(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The global that a function without a name of its own is entered in: `show` by `@show.register`; "" for none."""
    return next((first for one in decorators_of(function) if (first := one.partition(".")[0]) != one), "")


def _passing_names(node: ast.stmt) -> Iterator[str]:
    """The names that a block binds for its own lines: the variables of loops, `with … as`, `except … as`."""
    for one in walk_until(FUNCTIONS, node):
        if isinstance(one, ast.ExceptHandler) and one.name:
            yield one.name
        elif target := getattr(one, "optional_vars", None) or (isinstance(one, ast.For) and one.target):
            yield from (name.id for name in walk(target) if isinstance(name, ast.Name))


def _changes(node: ast.stmt) -> frozenset[str]:
    """The globals whose objects the statements of a block change."""
    inner = (one for one in walk_until(FUNCTIONS, node) if isinstance(one, ast.stmt) and not assigned_name(one))
    return frozenset(map(_stored_into, inner)) - {""}


def imported_names(node: ast.Import | ast.ImportFrom) -> tuple[ImportedName, ...]:
    """The names that one import statement binds."""
    if isinstance(node, ast.Import):
        return tuple(ImportedName(alias.name, "", alias.asname or "") for alias in node.names)
    module = "." * node.level + (node.module or "")
    return tuple(ImportedName(module, alias.name, alias.asname or "") for alias in node.names)


def _imports_in(node: ast.AST, skip: tuple[type[ast.stmt], ...] = ()) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements in a statement, but for those in the statements of the types to skip."""
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        yield node
    elif not isinstance(node, (ast.expr, *skip)):
        for child in ast.iter_child_nodes(node):
            yield from _imports_in(child, skip)


def imports_within(text: str, word: str) -> tuple[ImportedName, ...]:
    """The names that imports in the body of a definition bind, if an absolute one has `word` in its line."""
    if "import" not in text or not re.search(
        rf"(?im)^[ \t]*(?:from[ \t]+(?=[^\s.])|import\b)[^\n]*{re.escape(word)}", text
    ):
        return ()
    return tuple(name for node in parse(text).body for child in _imports_in(node) for name in imported_names(child))


def relative_imports(statement: Statement) -> tuple[ImportedName, ...]:
    """The names that a statement binds by relative imports, in the bodies of functions too, but not those of a `try`.

    What a top-level `if` imports does not count either: it may be for type checkers alone.
    """
    if statement.role is Role.PROTECTED_IMPORT or statement.binds or not _RELATIVE_IMPORT.search(statement.text):
        return ()
    return tuple(name for name in statement.imports or _imports_of_bodies(statement.text) if name.is_relative)


@functools.lru_cache(maxsize=1024)  # asked twice in a conversion, and an editor converts again and again
def _imports_of_bodies(text: str) -> tuple[ImportedName, ...]:
    """The names that the imports in a definition bind, but for those of a `try`."""
    imports = (one for node in parse(text).body for one in _imports_in(node, skip=(ast.Try,)))
    return tuple(name for one in imports for name in imported_names(one))


def assigned_name(node: ast.stmt) -> str:
    """The plain name that an assignment or a `type` statement binds, or ""."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id
    if type(node).__name__ == "TypeAlias":  # `type Pair = …`, from Python 3.12 on
        return str(node.name.id)  # type: ignore[attr-defined]
    return ""


def _stored_into(node: ast.stmt) -> str:
    """The global that `GLOBAL["key"] = …`, `GLOBAL.x = …`, `GLOBAL += …`, `GLOBAL.update(…)` or `setattr(GLOBAL, "x", …)`
    changes, or "".
    """
    target: ast.expr | None = None
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        function = node.value.func
        sets = isinstance(function, ast.Name) and function.id in ("setattr", "delattr") and node.value.args
        target = node.value.args[0] if sets else function if isinstance(function, ast.Attribute) else None
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
    elif isinstance(node, ast.AugAssign):
        target = node.target
    elif isinstance(node, ast.Delete) and len(node.targets) == 1 and not isinstance(node.targets[0], ast.Name):
        target = node.targets[0]
    while isinstance(target, (ast.Subscript, ast.Attribute)):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


IndexValues = list[list[Any]]
"""An index as values that JSON knows: what stands in the text itself is told by where."""
_SETS, _IMPORTS = frozenset({"condition", "binds", "needs", "changes"}), frozenset({"imports", "inner_imports"})
_DEFAULTS = {one.name: one.default for one in fields(Statement) if one.default is not MISSING}
_OTHERS = [name for name in _DEFAULTS if name not in ("lead", "known_uses")]


def values_of_index(module: Module, text: str) -> IndexValues:
    """The index of a text, which `index_of_values` gives back with the text."""
    starts = [0, *(found.end() for found in re.finditer("\n", text))]
    found: IndexValues = [[module.header]]
    for one in module.statements:
        first = starts[one.line - 1]
        at, above = text.find(one.text, first), first - len(one.lead)
        others = {name: value for name in _OTHERS if (value := getattr(one, name)) != _DEFAULTS[name]}
        values = {
            name: sorted(value)
            if name in _SETS
            else [[*map(str, astuple(x))] for x in value]
            if name in _IMPORTS
            else value
            for name, value in others.items()
        }
        lead = len(one.lead) if above >= 0 and text.startswith(one.lead, above) else one.lead
        words = [at, len(one.text)] if at >= 0 else [one.text, 0]
        found.append([one.role.value, one.name, one.line, first, lead, *words, *([values] if values else [])])
    return found


def index_of_values(index: IndexValues, text: str) -> Module:
    """The inverse of `values_of_index`, for no path. Raises `ValueError`, `TypeError` or `LookupError` for other values."""
    (header,), *rows = index
    found = []
    for role, name, line, first, lead, at, length, *others in rows:
        words = at if isinstance(at, str) else text[at : at + length]
        above = lead if isinstance(lead, str) else text[first - lead : first]
        values = {key: _MADE[key](value) for key, value in others[0].items()} if others else {}
        found.append(Statement(Role(role), name, words, line, above, **values))
    return Module("", header, tuple(found))


_MADE: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_OTHERS, bool),
    **dict.fromkeys(_SETS, frozenset),
    **dict.fromkeys(_IMPORTS, lambda value: tuple(ImportedName(*one) for one in value)),
    "bases": tuple,
    "joined": lambda value: tuple(map(tuple, value)),
}
