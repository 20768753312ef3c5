"""Edits of a modular file that the fixes of several rules share."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from modular_converter.findings import Edit, Finding, Fix, character_column, split_lines
from modular_converter.model.module import exported_constants
from modular_converter.model.nodes import parse


def subject(finding: Finding) -> str:
    """The name that the message of a finding is about: its first words in backticks."""
    return finding.message.split("`")[1]


def remove_statement(text: str, finding: Finding, title: str) -> Fix | None:
    """A fix that removes the statement at a finding, with its whole lines.

    None where the statement shares a line, or is the only one of its block.
    """
    found = _statement_at(text, finding.location.line, finding.location.column)
    if found is None or len(found[1]) == 1:
        return None
    node = found[0]
    lines = split_lines(text)
    (first, start), (last, end) = _extent(text, node)
    before, behind = lines[first - 1][: start - 1], lines[last - 1][end - 1 :].strip()
    if before.strip() or (behind and not behind.startswith("#")):
        return None
    return Fix(title, (remove_lines(text, first, last),))


def remove_lines(text: str, first: int, last: int) -> Edit:
    """The edit that removes whole lines."""
    lines = split_lines(text)
    if last < len(lines):
        return Edit(first, 1, last + 1, 1, "")
    return Edit(first, 1, last, len(lines[last - 1]) + 1, "")


def _statement_at(text: str, line: int, column: int) -> tuple[ast.stmt, list[ast.stmt]] | None:
    """The innermost statement that covers a place, and the block that it stands in."""
    found = None
    for block in _blocks(parse(text)):
        for node in block:
            start, end = _extent(text, node)
            if start <= (line, column) < end:
                found = (node, block)
    return found


def _extent(text: str, node: ast.stmt) -> tuple[tuple[int, int], tuple[int, int]]:
    """The start and the end of a statement, as `at` gives them."""
    return at(text, node.lineno, node.col_offset), at(text, node.end_lineno or node.lineno, node.end_col_offset or 0)


def _blocks(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    """All blocks of statements, outer ones first."""
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block:
                yield block


def exports(text: str) -> tuple[list[ast.Constant], ast.expr] | None:
    """The names in `__all__ = […]` and the list itself; None where it is no list of names."""
    for node in parse(text).body:
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == "__all__" for target in node.targets):
            names, value = [*exported_constants(node)], node.value
            is_list = isinstance(value, (ast.List, ast.Tuple)) and len(names) == len(value.elts)
            return (names, value) if is_list else None
    return None


def at(text: str, line: int, byte: int) -> tuple[int, int]:
    """Line and column, from 1, of a place that the parser gives."""
    return line, character_column(split_lines(text)[line - 1], byte) + 1
