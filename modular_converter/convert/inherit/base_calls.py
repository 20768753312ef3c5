"""Calls on an explicit base, `Base.method(self, …)`, which keep the parent's code out of an override."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from modular_converter.convert.inherit.blocks import pad, parse_padded
from modular_converter.settings.values import Settings


def call_super_for_bases(text: str, method: str, bases: Sequence[str], settings: Settings) -> str:
    """The text of a method in which `Base.method(self, …)` is `super().method(…)` where both reach the same.

    Args:
        method: its name.
        bases: the bases of the generated class.
    """
    # A quick test: most methods call no base, and need not be parsed.
    if not re.search(rf"\w\.{method}\(", text):
        return text
    padded = pad(text)
    padding = len(padded) - len(text)
    for start, end, replacement in sorted(_edits(padded, method, bases, settings), reverse=True):
        padded = padded[:start] + replacement + padded[end:]
    return padded[padding:]


def _edits(padded: str, method: str, bases: Sequence[str], settings: Settings) -> Iterator[tuple[int, int, str]]:
    offset = _Offsets(padded)
    for call in ast.walk(parse_padded(padded)):
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)) or call.func.attr != method:
            continue
        base = call.func.value
        if not _reaches_super(_dotted_name(base), bases, settings):
            continue
        yield (*offset(base), "super()")
        if call.args and isinstance(call.args[0], ast.Name) and call.args[0].id == "self":
            start, end = offset(call.args[0])
            comma = re.match(r"\s*,\s*", padded[end:])
            yield (start, end + (comma.end() if comma else 0), "")


def _reaches_super(base: str, bases: Sequence[str], settings: Settings) -> bool:
    """Whether a call on `base` reaches what `super()` reaches in a class with these bases."""
    return (
        base in bases
        or any(settings.implied_bases.get(other) == base for other in bases)
        or (base != "" and base == settings.model_base and any(base in other for other in bases))
    )


def _dotted_name(node: ast.expr) -> str:
    """`a.b.c` as text, or "" for any other expression."""
    inner = node
    while isinstance(inner, ast.Attribute):
        inner = inner.value
    return ast.unparse(node) if isinstance(inner, ast.Name) else ""


class _Offsets:
    """Half-open offsets, in characters, of the nodes of a text; the parser counts columns in UTF-8 bytes."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line) + 1)

    def __call__(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self._at(node.lineno, node.col_offset), self._at(node.end_lineno, node.end_col_offset)

    def _at(self, line: int, column: int) -> int:
        return self.starts[line - 1] + len(self.lines[line - 1].encode()[:column].decode())
