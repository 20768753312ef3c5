"""Words that several rules share."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from modular_converter.findings import Finding, Location, Rule
from modular_converter.model.class_blocks import ClassBlock


WRITE_OUT = "Write the class out."


def not_mergeable(rule: Rule, location: Location, override: str, reason: str, help: str | None = None) -> Finding:
    """`reason` names the obstacle, `help` the text to write instead: by default the parent's lines."""
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
