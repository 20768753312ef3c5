"""Words that several rules share."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import NamedTuple

from modular_converter.findings import ClassFinding, Finding, Location, Rule
from modular_converter.model.class_blocks import ClassBlock


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
        return ClassFinding(self.node, lambda place: not_mergeable(rule, place, self.override, self.reason, self.help))


def not_mergeable(rule: Rule, location: Location, override: str, reason: str, help: str | None = None) -> Finding:
    """See `Obstacle`."""
    help = help or f"Write the lines of the parent's `{override}` out, and change what you need."
    return Finding(rule, location, f"`{override}` cannot be merged with the parent's: {reason}", help=help)


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
