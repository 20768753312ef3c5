"""Imports of a neighbour that lies in another package than the target: relative ones become absolute."""

from __future__ import annotations

import re

from modular_converter.convert.source import lexer


_RELATIVE_FROM = re.compile(r"^[ \t]*from[ \t]+(?P<module>\.[\w.]*)[ \t]+import\b", re.MULTILINE)


def absolute_module(module: str, package: str) -> str:
    """`...activations` in package `transformers.models.llama` -> `transformers.activations`; absolute ones stay."""
    stripped = module.lstrip(".")
    level = len(module) - len(stripped)
    if not level:
        return module
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - level + 1], *([stripped] if stripped else [])])


def absolute_imports(text: str, package: str) -> str:
    """The text of a definition with the relative imports in it made absolute."""
    if "import" not in text:
        return text
    pieces: list[str] = []
    position = 0
    for match in _RELATIVE_FROM.finditer(lexer.code_only(text)):
        start, end = match.span("module")
        pieces += (text[position:start], absolute_module(match["module"], package))
        position = end
    return "".join((*pieces, text[position:]))
