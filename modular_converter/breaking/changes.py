"""A change, as comparisons find it."""

from __future__ import annotations

from typing import NamedTuple

from modular_converter.breaking.values import CodePlace


MOST = 60
"""Characters of an expression that a message quotes."""


class ModelChange(NamedTuple):
    """One change of a model."""

    rule: str
    """The name of its rule."""
    model: str
    place: CodePlace
    """Where the new tree has what was changed, or the class that had it."""
    message: str
    """What happens, in words that are the same for all heirs."""
    word: str
    """The name by which the modular file would write it."""
    keys: tuple[str, ...] = ()
    """Of a state dict: the entries that change."""


def for_message(text: str | None) -> str:
    """An expression for a message: on one line, and not too long."""
    text = " ".join((text or "").split())
    return text if len(text) <= MOST else f"{text[:MOST]}…"
