"""The parts of a class by which near twins are found."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from modular_converter.authoring.normal_form import squeezed
from modular_converter.convert.source.index import first_line, is_docstring
from modular_converter.facts.members import class_node


SMALLEST = 12
"""Characters of a part that says something."""


def forms_of_parts(text: str, abstract: str) -> list[tuple[str, int]]:
    """The form and the number of lines of each part of a class: members, and the statements of `__init__`.

    Args:
        text: the class.
        abstract: the same lines without the names of the model.
    """
    try:
        node = class_node(text)
    except (SyntaxError, ValueError, RecursionError):
        return []
    lines = abstract.split("\n")
    found: dict[str, int] = {}
    for part in _parts(node):
        first, last = first_line(part, lines) - 1, part.end_lineno or part.lineno
        form = squeezed("".join(lines[first:last]))
        if len(form) >= SMALLEST:
            found.setdefault(form, last - first)
    return list(found.items())


def _parts(node: ast.ClassDef) -> Iterator[ast.stmt]:
    for member in node.body:
        if not is_docstring(member):
            yield member
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            yield from (one for one in member.body if not is_docstring(one))
