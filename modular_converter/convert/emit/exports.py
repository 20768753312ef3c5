"""Write `__all__`, the names that a module exports."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from modular_converter.model.nodes import parse


def render_all(names: Iterable[str]) -> str:
    """`__all__ = […]` on one line; the formatter breaks it."""
    return "__all__ = [" + ", ".join(f'"{name}"' for name in names) + "]\n"


def names_in_strings(text: str) -> list[str]:
    """The class names that occur as strings in a statement, in order."""
    return re.findall(r"[\"']([A-Z]\w*)[\"']", text)


def on_one_line(text: str) -> str:
    """A statement without its own line breaks and trailing commas; the formatter decides anew."""
    return "\n".join(ast.unparse(node) for node in parse(text).body) + "\n"
