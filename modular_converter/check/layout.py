"""Whether two texts differ by layout alone: the same code and the same comments, set out in another way."""

from __future__ import annotations

import ast
import inspect
import io
import itertools
import re
import tokenize
from collections.abc import Sequence

from modular_converter.findings import UNPARSABLE
from modular_converter.model.nodes import parse


_BETWEEN = re.compile(r"\n\n\n(?=\S)")
"""The blank lines above a definition of a formatted file."""
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def differ_by_layout_alone(old: str, new: str) -> bool:
    """Whether both texts have the same syntax tree and the same comments in the same order.

    The indentation of docstrings, line breaks, quotes and parentheses are layout. A text that is not Python has none.
    """
    for before, after in (_differing_parts(old, new), (old, new)):
        try:
            return _tree(before) == _tree(after) and _comments(before) == _comments(after)
        except (*UNPARSABLE, tokenize.TokenError):
            continue  # cut within a statement, or no Python at all
    return False


def _differing_parts(old: str, new: str) -> tuple[str, str]:
    """The texts without their common definitions at the start and the end; the whole texts if the common start ends in
    a string.

    Most stale files differ in one class, and the trees of two whole files take 0.1 s.
    """
    olds, news = re.split(_BETWEEN, old), re.split(_BETWEEN, new)
    first = _number_of_same(olds, news)
    last = _number_of_same(olds[:first:-1], news[:first:-1])
    try:
        parse("\n\n\n".join(olds[:first]))
    except UNPARSABLE:
        return old, new
    before, after = ("\n\n\n".join(some[first : len(some) - last]) for some in (olds, news))
    return before, after


def _number_of_same(olds: Sequence[str], news: Sequence[str]) -> int:
    """The number of equal parts at the start of both."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(olds, news)))


def _tree(text: str) -> str:
    """The syntax tree as text, without places; docstrings as `help` would show them."""
    tree = parse(text)
    for node in ast.walk(tree):
        if isinstance(node, _WITH_DOCSTRING) and ast.get_docstring(node, clean=False) is not None:
            constant = node.body[0].value  # type: ignore[attr-defined]
            constant.value = "\n".join(line.rstrip() for line in inspect.cleandoc(constant.value).splitlines())
        elif isinstance(node, ast.Delete) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Tuple):
            node.targets = node.targets[0].elts  # `del (a, b)` is `del a, b`
    return ast.dump(tree)


def _comments(text: str) -> list[str]:
    """The comments in order, without the blanks around their words."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return [token.string.lstrip("#").strip() for token in tokens if token.type == tokenize.COMMENT]
