"""Local names that code may read before they have a value. Conditions are not compared: each may be true or false."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from modular_converter.model.bindings import bindings_of
from modular_converter.model.nodes import children, walk


_INNER = (ast.stmt, ast.excepthandler, ast.match_case)
_LEAVING = (ast.Return, ast.Raise, ast.Break, ast.Continue)


def read_unbound(statements: Iterable[ast.stmt], unbound: frozenset[str]) -> dict[str, ast.stmt]:
    """The names without a value above some statements that these may read so, each with the first statement that does."""
    found: dict[str, ast.stmt] = {}
    for node in statements:
        read = set[str]()
        unbound = _through(node, unbound, read)
        found = dict.fromkeys(sorted(read), node) | found
    return found


def _through(node: ast.stmt, unbound: frozenset[str], read: set[str]) -> frozenset[str]:
    """The names that may have no value below a statement, none if nothing there is reached. Those that it reads join
    `read`.
    """
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) or not hasattr(node, "body"):
        scope = bindings_of(node) if not isinstance(node, ast.Match) else bindings_of(node.subject)
    else:
        scope = bindings_of(*(one for one in children(node) if not isinstance(one, _INNER)))
    read |= scope.reads_now & unbound
    bound = unbound - scope.binds

    def run(block: Iterable[ast.stmt], lacking: frozenset[str]) -> frozenset[str]:
        for one in block:
            lacking = _through(one, lacking, read)
        return lacking

    match node:
        case ast.If():
            return run(node.body, bound) | run(node.orelse, bound)
        case ast.For() | ast.AsyncFor() | ast.While():
            run(node.body, bound)
            rest = run(node.orelse, unbound)
            return unbound if any(isinstance(one, ast.Break) for one in walk(node)) else rest
        case ast.With() | ast.AsyncWith():
            return run(node.body, bound)
        case ast.Match():
            cases = (run(one.body, bound - bindings_of(one.pattern).binds) for one in node.cases)
            return bound.union(*cases)
        case ast.Try():
            caught = (run(one.body, unbound - {one.name}) for one in node.handlers)
            done = run(node.orelse, run(node.body, unbound)).union(*caught)
            return run(node.finalbody, unbound) & done
    return frozenset() if isinstance(node, _LEAVING) else bound
