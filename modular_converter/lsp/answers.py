"""What an editor asks about a place in a modular or a generated file. Lines count from 1, columns in characters from 1."""

from __future__ import annotations

import ast
import os
import re
import textwrap
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from modular_converter.convert.conversion import Conversion
from modular_converter.convert.inherit.resolve import neighbour_module
from modular_converter.convert.source.library import Library
from modular_converter.findings import UNPARSABLE, ConversionError, Location, locate_word
from modular_converter.lsp.open_files import OpenFiles, Refusal, project_settings
from modular_converter.model.class_blocks import class_node
from modular_converter.model.module import Module, Role, Statement
from modular_converter.model.nodes import top_line
from modular_converter.model.resolver import Definition
from modular_converter.provenance.generated import LineRange, LineSource, joined
from modular_converter.reporting.display import count
from modular_converter.settings.layout import modular_of


DEEPEST = 20
"""The most ancestors, one above the other, in which a method is looked for; longer chains are circles."""
MOST_SHOWN = 60
"""The most lines of a hover."""
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
_METHODS = (ast.FunctionDef, ast.AsyncFunctionDef)


class CodeSpot(NamedTuple):
    """The definition of a file that a line belongs to."""

    statement: Statement
    method: str = ""
    """The method of a class that the line belongs to; "" for none."""


def spot_at(module: Module, line: int) -> CodeSpot | None:
    """The definition at a line; None where there is none."""
    for statement in module.statements:
        if statement.line <= line <= statement.line + statement.text.count("\n") and statement.name:
            if statement.role is not Role.CLASS:
                return CodeSpot(statement)
            return CodeSpot(
                statement, next((one.name for one in _methods(statement) if line in _lines(one, statement)), "")
            )
    return None


def _methods(statement: Statement) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    try:
        return [one for one in class_node(statement.text).body if isinstance(one, _METHODS)]
    except UNPARSABLE:
        return []


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef, statement: Statement) -> range:
    """The lines of a method in its file, decorators included."""
    return range(statement.line + top_line(node) - 1, statement.line + (node.end_lineno or node.lineno))


def is_head(spot: CodeSpot, line: int) -> bool:
    """Whether a line is above the body of a definition: a decorator, or the line with its name."""
    head = re.search(r"^(?:async\s+)?(?:class|def)\s", spot.statement.text, re.MULTILINE)
    return line <= spot.statement.line + spot.statement.text.count("\n", 0, head.start() if head else 0)


def hover_text(text: str) -> str:
    """A text for a hover: its first lines, and the number of the others."""
    lines = textwrap.dedent(text).split("\n")
    more = len(lines) - MOST_SHOWN
    return "\n".join([*lines[:MOST_SHOWN], *([f"# … {more} more lines"] if more > 0 else [])])


def name_at(text: str, line: int, column: int) -> str:
    """The name at a place, with what stands before its last point up to there: `super().forward` gives `forward`."""
    lines = text.split("\n")
    if not 0 < line <= len(lines):
        return ""
    for match in _NAME.finditer(lines[line - 1]):
        if match.start() < column <= match.end() + 1:
            end = re.compile(r"\w*").match(match.string, max(column - 1, match.start()))
            return match.string[match.start() : end.end() if end else match.end()].rstrip(".")
    return ""


def generated_text(spot: CodeSpot, conversion: Conversion, library: Library) -> str:
    """A definition, or a method of a class, as it is generated. Raises `Refusal` where there is none."""
    if conversion.failed:
        raise Refusal(f"`{spot.statement.name}` is not generated: {conversion.findings[0].message}")
    for path, origins in conversion.origins.items():
        if any(one.name == spot.statement.name for one in origins):
            library.put({path: conversion.files[path]})
            statement = library.module(path).definitions.get(spot.statement.name)
            if statement is not None:
                return _part(statement, spot.method)
    raise Refusal(f"`{spot.statement.name}` is in no generated file")


def _part(statement: Statement, method: str) -> str:
    lines = statement.text.split("\n")
    found = [one for one in _methods(statement) if one.name == method] if method else []
    if not found:
        return statement.text
    here = _lines(found[-1], statement)
    return "\n".join(lines[here.start - statement.line : here.stop - statement.line])


class Lens(NamedTuple):
    """A line of a modular file with what stands above it."""

    line: int
    title: str
    name: str
    """The class that it is about; "" for the file."""


def lenses(modular: str, files: OpenFiles) -> Iterator[Lens]:
    """What the classes of a modular file inherit from, and how many lines that saves."""
    library, conversion = files.library(modular), files.conversion(modular)
    module = library.module(modular)
    if conversion.files:
        names = ", ".join(map(os.path.basename, sorted(conversion.files)))
        lines = sum(text.count("\n") for text in conversion.files.values())
        yield Lens(1, f"generates {names}: {_saved(lines - library.text(modular).count(chr(10)))}", "")
    for name in module.classes:
        statement = module.definitions[name]
        if (parent := _neighbour_parent(statement, module, library)) is None:
            continue
        title = f"inherits from {parent.name} of {os.path.basename(os.path.dirname(parent.path))}"
        if not conversion.failed:
            text = generated_text(CodeSpot(statement), conversion, library)
            title += f": {_saved(text.count(chr(10)) - statement.text.count(chr(10)))}"
        yield Lens(locate_word(modular, name, library.text(modular), statement.line).line, title, name)


def _saved(lines: int) -> str:
    return f"{count(lines, 'line')} saved" if lines >= 0 else f"{count(-lines, 'line')} more than generated"


def _neighbour_parent(statement: Statement, module: Module, library: Library) -> Definition | None:
    for base in statement.bases:
        imported = module.imported.get(base.partition(".")[0])
        if imported is not None and neighbour_module(imported.module, library.settings) is not None:
            found = library.resolver.name_in(module.path, base)
            if found is not None and found.name:
                return found
    return None


def definitions(path: str, line: int, column: int, files: OpenFiles) -> list[Location]:
    """Where what stands at a place of a modular file comes from: the parent of a class at its name, the parent's method at
    the name of a method or behind `super()`, else the definition of an imported name.
    """
    library = files.library(path)
    module, text = library.module(path), library.text(path)
    name, spot = name_at(text, line, column), spot_at(module, line)
    last = name.rpartition(".")[2]
    statement = spot.statement if spot and spot.statement.role is Role.CLASS else None
    if statement is not None and last:
        before = text.split("\n")[line - 1][: column - 1]
        is_super = re.search(r"super\([^()]*\)\.\w*$", before) is not None
        is_method = re.search(r"\bdef\s+\w*$", before) is not None
        if is_super or is_method:
            return [*_above(statement, module, library, last)][:1]
        if name == statement.name:
            found = (library.resolver.name_in(path, base) for base in statement.bases)
            return [place for one in found if one is not None and (place := _place(one, library))]
    definition = library.resolver.name_in(path, name) if name else None
    place = _place(definition, library) if definition is not None else None
    return [place] if place is not None else []


def _place(definition: Definition, library: Library) -> Location | None:
    """The place of a definition; None for one that cannot be read."""
    if not definition.name:
        return Location(definition.path)
    try:
        statement = library.module(definition.path).definitions.get(definition.name)
        text = library.text(definition.path)
    except ConversionError:
        return None
    return locate_word(definition.path, definition.name, text, statement.line if statement else 1)


def _above(statement: Statement, module: Module, library: Library, method: str, depth: int = 0) -> Iterator[Location]:
    """The definitions of a method in the ancestors of a class, the nearest first."""
    for base in statement.bases if depth < DEEPEST else ():
        found = library.resolver.name_in(module.path, base)
        try:
            home = library.module(found.path) if found is not None and found.name else None
        except ConversionError:
            continue
        parent = home.definitions.get(found.name or "") if home is not None and found is not None else None
        if home is None or parent is None or parent.role is not Role.CLASS:
            continue
        for node in _methods(parent):
            if node.name == method:
                line = parent.line + node.lineno - 1
                yield locate_word(home.path, method, library.text(home.path), line)
        yield from _above(parent, home, library, method, depth + 1)


def generated_lines(modular: str, line: int, files: OpenFiles) -> list[LineRange]:
    """The lines of generated files that come from a line of a modular file. Raises `Refusal`."""
    return [
        place
        for path, sources in sorted(files.sources(modular).items())
        for place in joined(_reached(path, sources, LineRange(modular, line, line)))
    ]


def _reached(path: str, sources: Iterable[LineSource], wanted: LineRange) -> Iterator[LineRange]:
    for number, source in enumerate(sources, 1):
        if any(one.path == wanted.path and one.first <= wanted.first <= one.last for one in source.places):
            yield LineRange(path, number, number)


def source_lines(path: str, line: int, files: OpenFiles) -> list[LineRange]:
    """The lines of modular files and neighbours that a line of a generated file comes from. Raises `Refusal` where the
    file is not what its modular file gives.
    """
    modular = modular_of(path, project_settings(path))
    library = files.library(path)
    if not modular or not library.exists(modular):
        raise Refusal(f"no modular file generates {os.path.basename(path)}")
    sources = files.sources(modular).get(path)
    if sources is None:
        raise Refusal(f"{os.path.basename(modular)} does not generate {os.path.basename(path)}")
    text = files.texts.get(path)
    if (Library(library.settings).text(path) if text is None else text) != files.conversion(modular).files[path]:
        raise Refusal(f"{os.path.basename(path)} is not what {os.path.basename(modular)} gives: convert it first")
    return list(sources[line - 1].places) if 0 < line <= len(sources) else []
