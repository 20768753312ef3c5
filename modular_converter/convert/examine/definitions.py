"""The definitions of a text that is examined, and what their code reads and does. The syntax trees of the
last texts are kept, since one may have thousands of faults.
"""

from __future__ import annotations

import ast
import bisect
import functools
import os
import re
import sys
from collections.abc import Mapping, Sequence

from modular_converter.convert.conversion import Origin
from modular_converter.findings import UNPARSABLE, Location, locate_word
from modular_converter.model.bindings import bindings_of
from modular_converter.model.nodes import parse


_NAMED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@functools.lru_cache(maxsize=4)
def parsed(text: str) -> ast.Module:
    """The syntax tree, which must not be changed. Raises as `ast.parse` does."""
    return parse(text)


def definition_at(text: str, line: int, word: str) -> tuple[str, int]:
    """The top-level definition at a line of a text, and the line; for a line outside of all definitions, the first user
    of `word`.
    """
    try:
        spans = _spans(text)
    except UNPARSABLE:
        starts, names = _headings(text)
        above = bisect.bisect_right(starts, line)
        return (names[above - 1] if above else ""), line
    place = bisect.bisect_right(spans, (line, sys.maxsize, "")) - 1
    if place >= 0 and spans[place][0] <= line <= spans[place][1]:
        return spans[place][2], line
    return _first_users(text).get(word, ("", line))


def is_read(name: str, line: int, text: str) -> bool:
    """Whether Python reads a name on a line of a text: it does not where the name only stands in a quoted annotation."""
    return (name, line) in _names(text)


def binding_below(name: str, line: int, text: str) -> int:
    """The line of the first statement below `line` at the top level that gives `name` a value; 0 for none."""
    places = _bindings(text).get(name, ())
    following = bisect.bisect_right(places, line)
    return places[following] if following < len(places) else 0


@functools.lru_cache(maxsize=4)
def _names(text: str) -> frozenset[tuple[str, int]]:
    """Each name that is code, outside of strings, and its line."""
    return frozenset((one.id, one.lineno) for one in ast.walk(parsed(text)) if isinstance(one, ast.Name))


@functools.lru_cache(maxsize=4)
def _spans(text: str) -> Sequence[tuple[int, int, str]]:
    """First line, last line and name of each top-level definition, decorators included."""
    return [
        (min([node.lineno, *(one.lineno for one in node.decorator_list)]), node.end_lineno or 0, node.name)
        for node in parsed(text).body
        if isinstance(node, _NAMED)
    ]


@functools.lru_cache(maxsize=4)
def _first_users(text: str) -> Mapping[str, tuple[str, int]]:
    """Name -> the first top-level definition that uses it, and the line of the use."""
    users: dict[str, tuple[str, int]] = {}
    for node in parsed(text).body:
        if isinstance(node, _NAMED):
            for one in ast.walk(node):
                if isinstance(one, ast.Name):
                    users.setdefault(one.id, (node.name, one.lineno))
    return users


@functools.lru_cache(maxsize=4)
def _bindings(text: str) -> Mapping[str, Sequence[int]]:
    """Name -> the lines of the top-level statements that give it a value, imports left out."""
    lines: dict[str, list[int]] = {}
    for node in parsed(text).body:
        for name in bindings_of(node).assigns:
            lines.setdefault(name, []).append(node.lineno)
    return lines


@functools.lru_cache(maxsize=4)
def _headings(text: str) -> tuple[Sequence[int], Sequence[str]]:
    """The lines and names of the definitions of a text that does not parse."""
    starts, names = [], []
    for number, content in enumerate(text.split("\n"), start=1):
        words = content.replace("(", " ").replace(":", " ").split() if content[:1].isalpha() else []
        if words[:1] in (["class"], ["def"]) and len(words) > 1:
            starts.append(number)
            names.append(words[1])
    return starts, names


def same_code(first: str, second: str) -> bool:
    """Whether two definitions run the same code: docstrings and annotations do not count."""
    return first == second or _what_runs(first) == _what_runs(second)


def _what_runs(text: str) -> str:
    """The syntax tree of a definition without docstrings and annotations."""
    tree = parse(text)
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            if ast.get_docstring(node) is not None:
                node.body[:1] = []
            if not isinstance(node, ast.ClassDef):
                node.returns = None
        elif isinstance(node, ast.arg):
            node.annotation = None
    return ast.dump(tree)


@functools.lru_cache(maxsize=64)
def globals_read(text: str) -> frozenset[str]:
    """The names of its module that a definition uses: attributes, parameters and local names do not count."""
    return bindings_of(parse(text)).module_reads


def place_in_modular(path: str, text: str, origin: Origin | None, word: str) -> Location:
    """The place where an author has to look: the word in the class, else the class, else the import of the copied code."""
    if origin is None:
        return locate_word(path, word, text) if word.isidentifier() else Location(path)
    if origin.path != path:
        module = os.path.splitext(os.path.basename(origin.path))[0]
        return first_mention(path, module, text)
    if word:
        headings = _top_level_lines(text)
        following = bisect.bisect_right(headings, origin.line)
        found = locate_word(path, word, text, origin.line)
        if found.end_line and (following == len(headings) or found.line < headings[following]):
            return found
    return locate_word(path, origin.name, text, origin.line)


@functools.lru_cache(maxsize=64)
def first_mention(path: str, module: str, text: str) -> Location:
    """The first line with the name of a module, which is mostly its import."""
    pattern = re.compile(rf"\b{re.escape(module)}\b")
    for number, line in enumerate(text.split("\n"), start=1):
        if match := pattern.search(line):
            return Location(path, number, match.start() + 1, number, match.end() + 1)
    return Location(path)


@functools.lru_cache(maxsize=4)
def _top_level_lines(text: str) -> Sequence[int]:
    """The lines, from 1, that begin a statement at the top level."""
    return [number for number, line in enumerate(text.split("\n"), start=1) if line[:1].isalpha()]
