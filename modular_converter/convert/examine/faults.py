"""The faults of a generated text, as values: it does not compile, a name is imported for type checkers alone or from a
file that lacks it, the bases of a class have no order or are classes of another model. Only new or changed texts are
parsed, and the syntax trees of the last ones are kept, since one may have thousands of faults. Undefined names are found
by the linter of the formatter.
"""

from __future__ import annotations

import ast
import bisect
import functools
import itertools
import os
import re
import sys
import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from modular_converter.convert.inherit.resolve import neighbour_module
from modular_converter.convert.source.library import Library
from modular_converter.findings import UNPARSABLE, Location, Origin, Rule, locate_word
from modular_converter.model.bindings import EVERYTHING, FUNCTIONS, bindings_of
from modular_converter.model.index import imported_names
from modular_converter.model.module import is_postponed
from modular_converter.model.nodes import (
    children,
    dotted,
    is_type_checking,
    parse,
    running_parts,
    targets_of,
    top_line,
    walk,
    walk_until,
)
from modular_converter.rules import base_classes, tool_errors
from modular_converter.settings.values import is_modular, modular_name, module_name, parts_below_models


_NAMED = (ast.ClassDef, *FUNCTIONS)


@functools.lru_cache(maxsize=4)
def parsed(text: str) -> ast.Module:
    """The syntax tree, which must not be changed. Raises as `ast.parse` does."""
    return parse(text)


def definition_at(text: str, line: int, word: str) -> tuple[str, int]:
    """The top-level definition at a line of a text, and the line; for a line outside of all definitions, the first user
    of `word`.
    """
    try:
        spans = _spans(text)
    except UNPARSABLE:
        starts, names = _headings(text)
        above = bisect.bisect_right(starts, line)
        return (names[above - 1] if above else ""), line
    place = bisect.bisect_right(spans, (line, sys.maxsize, "")) - 1
    if place >= 0 and spans[place][0] <= line <= spans[place][1]:
        return spans[place][2], line
    return _first_users(text).get(word, ("", line))


def is_read(name: str, line: int, text: str) -> bool:
    """Whether Python reads a name on a line of a text: it does not where the name only stands in a quoted annotation."""
    return (name, line) in _names(text)


def binding_below(name: str, line: int, text: str) -> int:
    """The line of the first statement below `line` at the top level that gives `name` a value; 0 for none."""
    places = _bindings(text).get(name, ())
    following = bisect.bisect_right(places, line)
    return places[following] if following < len(places) else 0


@functools.lru_cache(maxsize=4)
def _names(text: str) -> frozenset[tuple[str, int]]:
    """Each name that is code, outside of strings, and its line."""
    return frozenset((one.id, one.lineno) for one in ast.walk(parsed(text)) if isinstance(one, ast.Name))


@functools.lru_cache(maxsize=4)
def _spans(text: str) -> Sequence[tuple[int, int, str]]:
    """First line, last line and name of each top-level definition, decorators included."""
    return [
        (top_line(node), node.end_lineno or 0, node.name) for node in parsed(text).body if isinstance(node, _NAMED)
    ]


@functools.lru_cache(maxsize=4)
def _first_users(text: str) -> Mapping[str, tuple[str, int]]:
    """Name -> the first top-level definition that uses it, and the line of the use."""
    users: dict[str, tuple[str, int]] = {}
    for node in parsed(text).body:
        if isinstance(node, _NAMED):
            for one in ast.walk(node):
                if isinstance(one, ast.Name):
                    users.setdefault(one.id, (node.name, one.lineno))
    return users


@functools.lru_cache(maxsize=4)
def _bindings(text: str) -> Mapping[str, Sequence[int]]:
    """Name -> the lines of the top-level statements that give it a value, imports left out."""
    lines: dict[str, list[int]] = {}
    for node in parsed(text).body:
        for name in bindings_of(node).assigns:
            lines.setdefault(name, []).append(node.lineno)
    return lines


@functools.lru_cache(maxsize=4)
def _headings(text: str) -> tuple[Sequence[int], Sequence[str]]:
    """The lines and names of the definitions of a text that does not parse."""
    starts, names = [], []
    for number, content in enumerate(text.split("\n"), start=1):
        words = content.replace("(", " ").replace(":", " ").split() if content[:1].isalpha() else []
        if words[:1] in (["class"], ["def"]) and len(words) > 1:
            starts.append(number)
            names.append(words[1])
    return starts, names


def same_code(first: str, second: str) -> bool:
    """Whether two definitions run the same code: docstrings and annotations do not count."""
    return first == second or _what_runs(first) == _what_runs(second)


def _what_runs(text: str) -> str:
    """The syntax tree of a definition without docstrings and annotations."""
    tree = parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if ast.get_docstring(node) is not None:
                node.body[:1] = []
            if not isinstance(node, ast.ClassDef):
                node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return ast.dump(tree)


@functools.lru_cache(maxsize=64)
def globals_read(text: str) -> frozenset[str]:
    """The names of its module that a definition uses: attributes, parameters and local names do not count."""
    return bindings_of(parse(text)).module_reads


def place_in_modular(path: str, text: str, origin: Origin | None, word: str) -> Location:
    """The place where an author has to look: the word in the class, else the class, else the import of the copied code."""
    if origin is None:
        return locate_word(path, word, text) if word.isidentifier() else Location(path)
    if origin.path != path:
        module = os.path.splitext(os.path.basename(origin.path))[0]
        return first_mention(path, module, text)
    if word:
        headings = _top_level_lines(text)
        following = bisect.bisect_right(headings, origin.line)
        found = locate_word(path, word, text, origin.line)
        if found.end_line and (following == len(headings) or found.line < headings[following]):
            return found
    return locate_word(path, origin.name, text, origin.line)


@functools.lru_cache(maxsize=64)
def first_mention(path: str, module: str, text: str) -> Location:
    """The first line with the name of a module, which is mostly its import."""
    pattern = re.compile(rf"\b{re.escape(module)}\b")
    for number, line in enumerate(text.split("\n"), start=1):
        if match := pattern.search(line):
            return Location(path, number, match.start() + 1, number, match.end() + 1)
    return Location(path)


@functools.lru_cache(maxsize=4)
def _top_level_lines(text: str) -> Sequence[int]:
    """The lines, from 1, that begin a statement at the top level."""
    return [number for number, line in enumerate(text.split("\n"), start=1) if line[:1].isalpha()]


class Fault(NamedTuple):
    """One fault, with its place in the generated text."""

    rule: Rule
    definition: str
    """The top-level class or function in which it is, "" outside of any."""
    detail: str
    """The name in question, the bases, or the reason why the text does not compile."""
    line: int
    """Counts from 1, 0 where the place is not known."""
    module: str = ""
    """For a name that a sibling lacks: the module that lacks the name, `.configuration_emu`."""


def find_faults(
    text: str, is_neighbour: Callable[[str], bool], names_of: Callable[[str], frozenset[str] | None]
) -> Iterator[Fault]:
    """The faults of one text, except undefined names, which the formatter's linter finds.

    `names_of` gives the top-level names of a module beside it, None for one that does not exist or may have any name.
    """
    error = compile_error(text)
    if error is not None:
        reason = getattr(error, "msg", "") or str(error) or type(error).__name__
        line = getattr(error, "lineno", 0) or 0
        yield Fault(tool_errors.INVALID_RESULT, "", reason, line)
        return
    tree = parse(text)
    yield from base_faults(tree, text, is_neighbour)
    yield from typing_only_faults(tree)
    for node in _imports(tree):
        names = names_of(node.module or "") if node.level == 1 else None
        if names is None:
            continue
        for alias in node.names:
            if alias.name != "*" and alias.name not in names:
                yield Fault(tool_errors.MISSING_IN_SIBLING, "", alias.name, node.lineno, f".{node.module}")


@functools.lru_cache(maxsize=64)
def compile_error(text: str) -> Exception | None:
    """The reason why Python does not compile a text, even if it can be parsed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes and the like are the author's own
        try:
            compile(text, "<text>", "exec", dont_inherit=True)
        except UNPARSABLE as error:
            return error
    return None


@functools.lru_cache(maxsize=64)
def top_level_names(text: str, module: str = "") -> frozenset[str] | None:
    """The names that a module binds when it is imported; None when they cannot be known.

    What it imports from itself, under its own name `module`, does not count: it has to bind that in another way.
    """
    try:
        tree = parse(text)
    except UNPARSABLE:
        return None
    own = {one for one in tree.body if isinstance(one, ast.ImportFrom) and one.level == 1 and one.module == module}
    names = bindings_of(*(one for one in tree.body if one not in own)).binds
    return None if names & {EVERYTHING, "__getattr__"} else names


def _imports(tree: ast.Module) -> Iterator[ast.ImportFrom]:
    """The imports that may run: neither imports for type checkers nor those that the file expects to fail."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ImportFrom):
            yield node
        elif isinstance(node, ast.If) and is_type_checking(node.test):
            waiting.extend(node.orelse)
        elif isinstance(node, ast.Try):
            waiting.extend([*node.handlers, *node.orelse, *node.finalbody])
        elif not isinstance(node, ast.expr):
            waiting.extend(children(node))


MOST_BASES = 200
"""The most bases and ancestors of a class that its order takes into account. Further ones could only add conditions, and
thousands take long.
"""
_TYPING_ONLY = frozenset({"Generic", "Protocol"})
"""Python drops these from the bases if another base inherits from them; they never decide whether there is an order."""


def base_faults(tree: ast.Module, text: str, is_neighbour: Callable[[str], bool]) -> Iterator[Fault]:
    """The faults in the bases of the top-level classes. `is_neighbour` recognises the modules of other models by their
    dotted names, leading dots included.
    """
    modules = dict(_imported_names(tree))
    classes = _classes(tree)
    roots = {_base_name(base).partition(".")[0] for node in classes for base in node.bases}
    made_from = _made_from(tree, modules, roots - modules.keys(), has_walrus=":=" in text)
    known: dict[str, type] = {}  # a class may be defined twice; its bases are those that exist by then
    for node in classes:
        named = [*map(_base_name, node.bases)]
        names = [name for name in named if name]
        for base, name in zip(node.bases, named):
            root, _, rest = name.partition(".")
            above = [root] if root in modules else made_from.get(root, ())
            for one in above:
                # With `a.b` imported, `c.D` after it may lead through `a.b` and `a.b.c`.
                parts = itertools.accumulate((modules[one], *rest.split(".")[:-1]), "{}.{}".format)
                if any(map(is_neighbour, parts)):
                    yield Fault(base_classes.FOREIGN_BASE, node.name, f"{one}.{rest}" if rest else one, base.lineno)
        has_order = _make_stand_in(node.name, names[:MOST_BASES], known)
        if not has_order or len(set(names)) < len(names):
            yield Fault(base_classes.INCONSISTENT_BASES, node.name, ", ".join(names), node.lineno)


def _make_stand_in(name: str, bases: Sequence[str], known: dict[str, type]) -> bool:
    """Whether Python finds an order for a class with these bases; it is tried with empty classes, of which `known` has the
    last of each name. An imported class counts without its own bases. These only add conditions, so bases without an
    order here have none in Python either.
    """
    wanted = [base for base in bases if base.rpartition(".")[2] not in _TYPING_ONLY]
    above = [known.get(base) or known.setdefault(base, type(base, (), {})) for base in wanted]
    try:
        made = type(name, tuple(above), {})
    except TypeError:
        known[name] = type(name, (), {})
        return False
    known[name] = made if len(made.__mro__) <= MOST_BASES else type(name, (), {})
    return True


def _base_name(node: ast.expr) -> str:
    """`nn.Module` of a base, also of `nn.Module[int]`; "" for a base that is no (dotted) name."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return dotted(node)


def _classes(tree: ast.Module) -> list[ast.ClassDef]:
    """The classes that are created when the module is imported, in order, those in blocks included."""
    found = walk_until((ast.expr, ast.ClassDef, *FUNCTIONS), tree)
    return sorted((one for one in found if isinstance(one, ast.ClassDef)), key=lambda one: one.lineno)


def _made_from(
    tree: ast.Module, imported: Container[str], wanted: Set[str], *, has_walrus: bool
) -> Mapping[str, Sequence[str]]:
    """Name -> the imported names in the values that assignments give it: `A` and `B` for `Base = A if fast else B`.

    Assignments to none of the `wanted` are left out: to look at each takes a fifth of a conversion.
    """
    found: dict[str, list[str]] = {}
    for node in walk_until((ast.expr,), tree):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        parts = walk(node) if has_walrus else walk(*targets_of(node))
        if not wanted.isdisjoint(one.id for one in parts if isinstance(one, ast.Name)):
            names = sorted(name for name in bindings_of(node.value).needs if name in imported)
            for name in bindings_of(node).binds if names else ():
                found.setdefault(name, []).extend(names)
    return found


def _imported_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """`(name, object)` of each import anywhere in the file; for an imported class the object is its module."""
    found = (node for node in walk_until((ast.expr,), tree) if isinstance(node, (ast.Import, ast.ImportFrom)))
    for one in (name for node in found for name in imported_names(node)):
        yield one.bound, one.dotted if not one.name or one.name.islower() else one.module


def typing_only_faults(tree: ast.Module) -> Iterator[Fault]:
    """One fault for each such name: Python raises a `NameError` before 3.14 where it stands in a signature."""
    hidden = _typing_only(tree)
    if not hidden:
        return
    postponed = is_postponed(tree)
    for statement in tree.body:
        scope = bindings_of(*running_parts(statement))
        read = scope.needs if postponed else scope.reads_now
        for name in sorted(read & hidden):
            hidden.discard(name)
            line = getattr(scope.reader(name, not postponed), "lineno", statement.lineno)
            yield Fault(tool_errors.TYPING_ONLY_NAME, getattr(statement, "name", ""), name, line)


def _typing_only(tree: ast.Module) -> set[str]:
    """The names that only imports under `if TYPE_CHECKING:` bind."""
    hidden: set[str] = set()
    bound: set[str] = set()
    for statement in tree.body:
        if isinstance(statement, ast.If) and is_type_checking(statement.test):
            hidden |= bindings_of(*statement.body).binds
            bound |= bindings_of(*statement.orelse).binds
        else:
            bound |= bindings_of(statement).binds
    return hidden - bound


def is_of_other_model(dotted: str, path: str, library: Library) -> bool:
    """Whether the module of an import in the file `path` belongs to another model."""
    settings = library.settings
    if neighbour_module(dotted, settings) is not None:
        return True
    parts = parts_below_models(dotted, settings)
    if parts is None or parts[0] in settings.no_models:
        return False
    here = os.path.dirname(path)
    found = library.resolver.path(dotted, here)
    if found is None or is_modular(found, settings):
        return found is not None and library.exists(found)
    folder = found.removesuffix(".py")
    names = [modular_name(parts[0], settings), *(f"{module_name(kind, parts[0])}.py" for kind in settings.file_kinds)]
    is_model = len(parts) == 1 and folder != here
    return is_model and any(library.exists(os.path.join(folder, name)) for name in names)
