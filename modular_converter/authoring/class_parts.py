"""The parts of a class by which similar classes are found."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from modular_converter.authoring.normal_form import squeezed
from modular_converter.model.index import first_line, is_docstring
from modular_converter.model.members import class_node


SMALLEST = 12
"""The fewest characters of a part that is characteristic."""


def forms_of_parts(text: str, abstract: str) -> list[tuple[str, int]]:
    """The form and the number of lines of each part of a class; see `places_of_parts`."""
    found: dict[str, int] = {}
    for form, first, last in places_of_parts(text, abstract):
        found.setdefault(form, last - first)
    return list(found.items())


def places_of_parts(text: str, abstract: str) -> Iterator[tuple[str, int, int]]:
    """The form, the first line (from 0) and the line behind each part of a class: members, bodies below a docstring,
    `__init__`'s lines. Parts overlap.

    Args:
        text: the class.
        abstract: the same lines without the names of the model.
    """
    try:
        node = class_node(text)
    except (SyntaxError, ValueError, RecursionError):
        return
    lines = abstract.split("\n")
    for first, last in _parts(node, lines):
        form = squeezed("".join(lines[first:last]))
        if len(form) >= SMALLEST:
            yield form, first, last


def _parts(node: ast.ClassDef, lines: list[str]) -> Iterator[tuple[int, int]]:
    """The first line of each part, counted from 0, and the line behind its last."""
    for member in node.body:
        if not is_docstring(member):
            yield first_line(member, lines) - 1, member.end_lineno or member.lineno
        if isinstance(member, ast.FunctionDef) and is_docstring(member.body[0]) and len(member.body) > 1:
            yield member.body[0].end_lineno or 0, member.end_lineno or 0
        if isinstance(member, ast.FunctionDef) and member.name == "__init__":
            for one in member.body:
                if not is_docstring(one):
                    yield first_line(one, lines) - 1, one.end_lineno or one.lineno
