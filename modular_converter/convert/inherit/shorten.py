"""Put a name in place of each statement that is only moved, since libcst takes most of the time of a merge."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from typing import NamedTuple

from modular_converter.findings import character_column
from modular_converter.model.class_blocks import Member
from modular_converter.model.index import end_with_footer, first_line
from modular_converter.model.overriding import calls_base


STAND_IN = "_"
INDENTATION = 8
"""The indentation of a method's statements. Only a block with this indentation can be moved unchanged."""


class Shortened(NamedTuple):
    """The text of a method, with `_` for most statements of its body."""

    text: str
    statements: tuple[str, ...]
    """The text of each statement of the body that `_` stands for; "" for one that is still there."""


def shorten(member: Member, rewritten: str) -> Shortened:
    """Take out the statements of a method that are moved unchanged.

    Args:
        rewritten: the method whose calls on a base may be rewritten; "" for none.
    """
    lines = [*itertools.repeat("", member.line - 1), *member.text.split("\n")]
    starts = [*itertools.accumulate((len(line) + 1 for line in lines[member.line - 1 :]), initial=0)]
    pieces: list[str] = []
    statements: list[str] = []
    done = 0
    for node, (first, column, last, end_column) in zip(member.function.body, _places(member.function.body, lines)):
        start, end = starts[first - member.line] + column, starts[last - member.line] + end_column
        text = member.text[start:end]
        if _may_change(node) or (rewritten and calls_base(text, rewritten)):
            statements.append("")
        else:
            pieces += member.text[done:start], STAND_IN
            statements.append(text)
            done = end
    return Shortened("".join((*pieces, member.text[done:])), tuple(statements))


def _places(nodes: list[ast.stmt], lines: list[str]) -> Iterator[tuple[int, int, int, int]]:
    """Line and column of the start and of the end of each statement; the comments at its end belong to a block."""
    for node, following in itertools.zip_longest(nodes, nodes[1:]):
        first, last = first_line(node, lines), node.end_lineno or node.lineno
        start, end = character_column(lines[first - 1], node.col_offset), node.end_col_offset or 0
        limit = first_line(following, lines) - 1 if following is not None else len(lines)
        below = end_with_footer(lines, last, limit, node.col_offset) if _is_block(node) else last
        yield first, start, below, character_column(lines[last - 1], end) if below == last else len(lines[below - 1])


def _may_change(node: ast.stmt) -> bool:
    """Whether a merge may rewrite a statement: a `return`, one with several targets, a block with another indentation."""
    targets = getattr(node, "targets", ())
    moves_badly = _is_block(node) and node.col_offset != INDENTATION
    return isinstance(node, ast.Return) or len(targets) > 1 or moves_badly


def _is_block(node: ast.stmt) -> bool:
    return hasattr(node, "body") or isinstance(node, ast.Match)
