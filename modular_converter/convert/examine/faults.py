"""The faults of a generated text, as values: it does not compile, a name is imported for type checkers alone or from a
file that lacks it, the bases of a class have no order or are classes of another model. Only new or changed texts are
parsed. Undefined names are found by the linter of the formatter.
"""

from __future__ import annotations

import ast
import functools
import os
import warnings
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from enum import Enum
from typing import NamedTuple

from modular_converter.convert.inherit.resolve import neighbour_module
from modular_converter.convert.source.library import Library
from modular_converter.findings import UNPARSABLE
from modular_converter.model.bindings import EVERYTHING, bindings_of
from modular_converter.model.index import imported_names
from modular_converter.model.nodes import is_type_checking, parse, running_parts, walk
from modular_converter.model.postponed import is_postponed
from modular_converter.settings.layout import is_modular, modular_name, module_name, parts_below_models


class FaultKind(Enum):
    """The kinds of fault in a text that the converter has put together."""

    INVALID = "it does not compile"
    TYPING_ONLY = "a name that only type checkers import is read when the file is imported"
    BASES = "the bases of a class have no order"
    FOREIGN_BASE = "a base is a class of another model, in that model's file"
    SIBLING = "a name is imported from a generated file that does not have it"


class Fault(NamedTuple):
    """One fault, with its place in the generated text."""

    kind: FaultKind
    definition: str
    """The top-level class or function in which it is, "" outside of any."""
    detail: str
    """The name in question, the bases, or the reason why the text does not compile."""
    line: int
    """Counts from 1, 0 where the place is not known."""
    module: str = ""
    """For a `SIBLING`: the module that lacks the name, `.configuration_emu`."""


_BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")


def statements_in(node: ast.AST) -> list[ast.AST]:
    """The statements directly within one, in order, with the handlers and cases that hold further ones."""
    return [part for block in _BLOCKS for part in getattr(node, block, ())]


def all_statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements of a module, those of inner blocks too, in no order."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(statements_in(node))


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
        yield Fault(FaultKind.INVALID, "", reason, line)
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
                yield Fault(FaultKind.SIBLING, "", alias.name, node.lineno, f".{node.module}")


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
    names = bindings_of(*(one for one in tree.body if not _imports_from(one, module))).binds
    return None if names & {EVERYTHING, "__getattr__"} else names


def _imports_from(statement: ast.stmt, module: str) -> bool:
    """Whether a statement is an import from a module beside it."""
    return isinstance(statement, ast.ImportFrom) and statement.level == 1 and statement.module == module


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
        else:
            waiting.extend(statements_in(node))


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
    classes = list(_classes(tree))
    roots = {(base_name(base) or "").partition(".")[0] for node in classes for base in node.bases}
    made_from = _made_from(tree, modules, roots - modules.keys(), has_walrus=":=" in text)
    known: dict[str, type] = {}  # a class may be defined twice; its bases are those that exist by then
    for node in classes:
        names = [name for base in node.bases if (name := base_name(base)) is not None]
        for base, name in zip(node.bases, map(base_name, node.bases)):
            root, _, rest = (name or "").partition(".")
            above = [root] if root in modules else made_from.get(root, ())
            for one in above:
                if any(map(is_neighbour, _modules_in(modules[one], rest))):
                    yield Fault(FaultKind.FOREIGN_BASE, node.name, f"{one}.{rest}" if rest else one, base.lineno)
        has_order = _make_stand_in(node.name, names[:MOST_BASES], known)
        if not has_order or len(set(names)) < len(names):
            yield Fault(FaultKind.BASES, node.name, ", ".join(names), node.lineno)


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


def base_name(node: ast.expr) -> str | None:
    """`nn.Module` of a base, also of `nn.Module[int]`; None for a base that is no (dotted) name."""
    if isinstance(node, ast.Subscript):
        return base_name(node.value)
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        above = base_name(node.value)
        return f"{above}.{node.attr}" if above else None
    return None


def _classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    """The classes that are created when the module is imported, in order, those under `if` and `try` included."""
    waiting: list[ast.AST] = list(reversed(tree.body))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ClassDef):
            yield node
        elif isinstance(node, (ast.If, ast.Try, ast.With, ast.ExceptHandler)):
            waiting.extend(reversed(statements_in(node)))


def _modules_in(imported: str, rest: str) -> Iterator[str]:
    """The modules that a dotted name may lead through: with `a.b` imported, `c.D` after it gives `a.b` and `a.b.c`."""
    yield imported
    for part in rest.split(".")[:-1]:
        imported = f"{imported}.{part}"
        yield imported


def _made_from(
    tree: ast.Module, imported: Container[str], wanted: Set[str], *, has_walrus: bool
) -> Mapping[str, Sequence[str]]:
    """Name -> the imported names in the values that assignments give it: `A` and `B` for `Base = A if fast else B`.

    Assignments to none of the `wanted` are left out: to look at each takes a fifth of a conversion.
    """
    found: dict[str, list[str]] = {}
    for node in all_statements(tree):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        parts = walk(node) if has_walrus else walk(*targets)
        if not wanted.isdisjoint(one.id for one in parts if isinstance(one, ast.Name)):
            names = sorted(name for name in bindings_of(node.value).needs if name in imported)
            for name in bindings_of(node).binds if names else ():
                found.setdefault(name, []).extend(names)
    return found


def _imported_names(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """`(name, object)` of each import anywhere in the file; for an imported class the object is its module."""
    statements = (node for node in all_statements(tree) if isinstance(node, (ast.Import, ast.ImportFrom)))
    for one in (name for node in statements for name in imported_names(node)):
        if not one.name:
            yield one.bound, one.module if one.asname else one.bound
        else:
            dot = "" if one.module.endswith(".") else "."
            yield one.bound, f"{one.module}{dot}{one.name}" if one.name.islower() else one.module


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
            yield Fault(FaultKind.TYPING_ONLY, getattr(statement, "name", ""), name, line)


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
