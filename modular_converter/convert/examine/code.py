"""Comparisons of the code of definitions."""

from __future__ import annotations

import ast
import functools

from modular_converter.model.bindings import bindings_of
from modular_converter.model.nodes import parse


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
