"""Words, and edits of a modular file, that several rules share."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from modular_converter.findings import ClassFinding, Edit, Finding, Fix, Location, Rule, character_column, split_lines
from modular_converter.model.class_blocks import ClassBlock
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


WRITE_OUT = "Write the class out."


class Obstacle(NamedTuple):
    """What keeps a class from being merged with its parent."""

    node: ast.AST
    """The place."""
    override: str
    """The member that cannot be merged."""
    reason: str
    help: str | None = None
    """The text to write instead; None for the parent's lines."""

    def finding(self, rule: Rule) -> ClassFinding:
        """What the rule says about it."""
        return ClassFinding(self.node, not_mergeable(rule, Location(""), self.override, self.reason, self.help))


def not_mergeable(rule: Rule, location: Location, override: str, reason: str, help: str | None = None) -> Finding:
    """See `Obstacle`."""
    help = help or f"Write the lines of the parent's `{override}` out, and change what you need."
    return rule.finding(location, f"`{override}` cannot be merged with the parent's: {reason}", help=help)


def fields_of(block: ClassBlock) -> frozenset[str]:
    """The annotated names of a class, except class variables."""
    return frozenset(
        node.target.id
        for node in (member.node for member in block.members)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if not ast.unparse(node.annotation).strip("'\"").rpartition("typing.")[2].startswith("ClassVar")
    )


def listed(names: Iterable[str]) -> str:
    """Names in words."""
    return ", ".join(f"`{name}`" for name in sorted(names))


def name_heirs(neighbour: str, prefix: str, cased: str, parent: str) -> str:
    """Advice for the names of the classes that inherit from `neighbour`, with the heir of `parent` as example.

    Args:
        neighbour: the module as the modular file writes it.
        prefix: the beginning of their names. cased: the name of the neighbour's model, which `prefix` replaces.
        parent: the name of a class there, before renaming.
    """
    example = f"class {prefix}{parent.removeprefix(cased)}({parent})"
    return (
        f"Name each class that inherits from {neighbour} after its parent, with `{prefix}` in place of `{cased}`: "
        f"`{example}`."
    )
