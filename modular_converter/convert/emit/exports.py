"""The names that a module exports: `__all__` read and written."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable

from modular_converter.convert.source.module import Statement


def exported_names(statement: Statement | None) -> list[str]:
    """The names in `__all__ = […]`; none when it is not a literal."""
    if statement is None:
        return []
    node = ast.parse(statement.text).body[0]
    value = getattr(node, "value", None)
    if not isinstance(value, (ast.List, ast.Tuple)):
        return []
    return [item.value for item in value.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]


def render_all(names: Iterable[str]) -> str:
    """`__all__ = […]` on one line; the formatter breaks it."""
    return "__all__ = [" + ", ".join(f'"{name}"' for name in names) + "]\n"


def names_in_strings(text: str) -> list[str]:
    """The class names that occur as strings in a statement, in order."""
    return re.findall(r"[\"']([A-Z]\w*)[\"']", text)


def on_one_line(text: str) -> str:
    """A statement without its own line breaks and trailing commas; the formatter decides anew."""
    return "\n".join(ast.unparse(node) for node in ast.parse(text).body) + "\n"
