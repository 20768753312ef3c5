"""The cure that several rules share: names for the heirs of one model which no copy of another model has."""

from __future__ import annotations


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
