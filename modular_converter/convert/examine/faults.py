"""Find the faults in the generated texts of one modular file. Only new or changed texts are parsed."""

from __future__ import annotations

import ast
import functools
import warnings
from collections.abc import Callable, Iterator

from modular_converter.convert.examine.bases import base_faults
from modular_converter.convert.examine.fault import Fault, FaultKind
from modular_converter.convert.examine.statements import statements_in
from modular_converter.convert.examine.typing_only import typing_only_faults
from modular_converter.findings import UNPARSABLE
from modular_converter.model.bindings import EVERYTHING, bindings_of
from modular_converter.model.nodes import is_type_checking, parse


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
    yield from base_faults(tree, is_neighbour)
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
