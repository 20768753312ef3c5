"""Complete examples of a difference: the definition in its sources, as published, and as converted."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from typing import NamedTuple

from modular_converter.check.tree_changes import DEFINITIONS, IMPORTS, LineSpan, span_of, with_comments
from modular_converter.convert.pipeline import first_steps
from modular_converter.convert.source.library import Library
from modular_converter.findings import UNPARSABLE, ConversionError
from modular_converter.model.nodes import parse


MOST_LINES = 80
"""Lines of an example that are shown."""
IMPORT = "imports"
"""In place of a definition's name: the imports of a file."""


class Passage(NamedTuple):
    """A definition in one of the files."""

    place: str
    text: str


def name_at(text: str, line: int) -> str:
    """The innermost class or function of a class that a line is in, or that begins behind it: `GemmaMLP.forward`."""
    found = IMPORT
    for name, span in definitions(text):
        if span.start <= line < span.end:
            found = name  # a member comes behind its class
        elif span.start > line and found == IMPORT and name != IMPORT:
            return name
    return found


def passage(path: str, text: str, name: str) -> Passage | None:
    """The definition of this name in a text, with its place; None where there is none."""
    lines = text.split("\n")
    spans = [span for one, span in definitions(text) if one == name]
    if not spans:
        return None
    cut = lines[spans[0].start - 1 : spans[-1].end - 1]
    more = [f"… ({len(cut) - MOST_LINES} more lines)"] if len(cut) > MOST_LINES else []
    place = "/".join(path.split(os.sep)[-2:])
    return Passage(f"{place}:{spans[0].start}", "\n".join([*cut[:MOST_LINES], *more]))


def sources(modular: str, name: str, library: Library) -> Iterator[Passage]:
    """A definition in the modular file and in the neighbour that it is taken from."""
    found = [passage(modular, library.text(modular), name)]
    try:
        finished = first_steps(modular, (), library)
    except ConversionError:
        finished = None
    top, dot, member = name.partition(".")
    if finished is not None and name != IMPORT:
        heir = finished.heirs.get(top)
        if heir is not None:
            givers = [(heir.source, heir.parent_name)]
        elif found[0] is None:
            givers = [(dotted, top) for dotted, one in finished.renamed.items() if top in one.definitions]
        else:
            givers = []
        for dotted, given in givers[:1]:
            one = finished.renamed[dotted]
            original = one.definitions.original(given).name + dot + member
            found.append(passage(one.neighbour.path, library.text(one.neighbour.path), original))
    yield from (one for one in found if one is not None)


def definitions(text: str) -> list[tuple[str, LineSpan]]:
    """The statements of a module and the methods of its classes by name, in order, with the comments above."""
    try:
        body = parse(text).body
    except UNPARSABLE:
        return []
    found = []
    for node in body:
        if isinstance(node, IMPORTS):
            found.append((IMPORT, span_of(node)))
        elif isinstance(node, DEFINITIONS):
            found.append((node.name, with_comments(span_of(node), text)))
            members = (
                [one for one in node.body if isinstance(one, DEFINITIONS)] if isinstance(node, ast.ClassDef) else []
            )
            found += [(f"{node.name}.{one.name}", with_comments(span_of(one), text)) for one in members]
        else:
            found.append((ast.unparse(getattr(node, "targets", [node])[0]), with_comments(span_of(node), text)))
    return found
