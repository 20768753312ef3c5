"""What the graph needs of a modular file: its imports, and the headers of its classes. Outlines can be kept between
runs, since they depend on nothing but the text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

from modular_converter.model.module import ImportedName, Role, Statement


class ClassHeader(NamedTuple):
    """The header of a class."""

    name: str
    line: int
    """The line of `class`, below the decorators."""
    bases: tuple[str, ...]


class Outline(NamedTuple):
    """The imports and classes at the top level of a file, in order."""

    imports: tuple[tuple[int, ImportedName], ...]
    """Each imported name, with the line of its statement."""
    classes: tuple[ClassHeader, ...]


def outline_of(statements: Iterable[Statement]) -> Outline:
    """The outline of a parsed file."""
    statements = tuple(statements)
    imports = ((one.line, name) for one in statements if one.role is Role.IMPORT for name in one.imports)
    headers = (ClassHeader(one.name, _header_line(one), tuple(one.bases)) for one in statements if one.bases)
    return Outline(tuple(imports), tuple(headers))


def key_of_text(text: str) -> str:
    """The key of a text among outlines: a hash."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _header_line(statement: Statement) -> int:
    header = re.search(r"^class\b", statement.text, re.MULTILINE)
    return statement.line + (statement.text.count("\n", 0, header.start()) if header else 0)
