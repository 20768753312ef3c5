"""The entries of a new model in the tables of its library, beside those of its parent: which configuration and which
head a name means, which models a package exports.
"""

from __future__ import annotations

import ast
import bisect
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from modular_converter.convert.source.library import Library
from modular_converter.convert.source.rename import Renamer
from modular_converter.findings import UNPARSABLE, ConversionError
from modular_converter.model.nodes import parse, walk


_MADE = re.compile(r"^#.*automatically generated", re.MULTILINE | re.IGNORECASE)


class Table(NamedTuple):
    """A file with tables, and the entries of a new model."""

    path: str
    old: str
    new: str
    is_generated: bool
    """Whether its own head says that a program writes it."""


def table_entries(
    models: str, renamer: Renamer, types: Mapping[str, str], classes: Mapping[str, str], library: Library
) -> Iterator[Table]:
    """Each file with tables in which the parent of a new model stands, with the entries of the new model.

    Tables stand in the `__init__.py` of the folder of models and in the folders that hold no model, such as `auto`. An
    entry is a pair of a name and a class, or a class, in a list or a dictionary, or an import of the parent; it begins
    and ends a line.

    Args:
        models: the folder of models.
        renamer: renames the parent to the new model.
        types: `model_type` of the parent -> that of the new model, also of parts such as its vision model.
        classes: class of the parent -> class of the new model.
        library: the sources.
    """
    folders = (os.path.join(models, name) for name in library.settings.no_models)
    listed = (os.path.join(one, name) for one in folders if os.path.isdir(one) for name in sorted(os.listdir(one)))
    for path in (os.path.join(models, "__init__.py"), *listed):
        if not path.endswith(".py") or not library.exists(path):
            continue
        try:
            text = library.text(path)
            new = with_entries(text, renamer, types, classes)
        except (ConversionError, *UNPARSABLE):
            continue
        if new != text:
            head = text[:2000].partition("\nimport ")[0]
            yield Table(path, text, new, _MADE.search(head) is not None)


def with_entries(text: str, renamer: Renamer, types: Mapping[str, str], classes: Mapping[str, str]) -> str:
    """The text of a file with the entries of a new model; see `table_entries`. Raises what `ast.parse` does for a file that is not Python."""
    lines = text.split("\n")
    added: list[tuple[int, str]] = []
    taken: set[int] = set()
    for nodes in _sequences(text):
        keys = [_key(node) for node in nodes]
        for node, key in zip(nodes, keys, strict=True):
            if (
                key is None
                or not _is_parents(node, key, renamer.old, types, classes)
                or not _has_own_lines(node, lines)
            ):
                continue
            new_key = classes.get(key) or types.get(key) or renamer.name(key)
            if new_key in keys or node.lineno in taken:
                continue
            taken.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))  # the sequences in it come later
            known = [one for one in keys if one is not None]
            is_sorted = known == sorted(known) and len(known) == len(keys)
            place = bisect.bisect(known, new_key) if is_sorted else nodes.index(node) + 1
            line = nodes[place].lineno - 1 if place < len(nodes) else (nodes[-1].end_lineno or 0)
            own = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            added.append((line, _renamed(own.replace(f'"{key}"', f'"{new_key}"'), renamer, classes)))
    added.sort(key=lambda one: one[0])  # stable, so that entries at one line keep their order
    while added:
        line, new = added.pop()
        lines[line:line] = new.split("\n")
    return "\n".join(lines)


def _sequences(text: str) -> Iterator[Sequence[ast.stmt | ast.expr]]:
    """The elements of each list, tuple and dictionary, and the imports that follow each other."""
    for node in walk(*parse(text).body):
        if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
            yield node.elts
        elif isinstance(node, ast.Dict) and None not in node.keys:
            yield [_pair(key, value) for key, value in zip(node.keys, node.values, strict=True) if key]
    bodies = [parse(text).body, *(node.body for node in walk(*parse(text).body) if isinstance(node, ast.If))]
    yield from ([one for one in body if isinstance(one, ast.ImportFrom)] for body in bodies)


def _pair(key: ast.expr, value: ast.expr) -> ast.Tuple:
    """An entry of a dictionary."""
    pair = ast.copy_location(ast.Tuple([key, value], ast.Load()), key)
    pair.end_lineno, pair.end_col_offset = value.end_lineno, value.end_col_offset
    return pair


def _key(node: ast.stmt | ast.expr) -> str | None:
    """What an entry is found by: the first of a pair, a class in quotes, the module of an import."""
    match node:
        case ast.Constant(value=str() as text):
            return text
        case ast.ImportFrom(module=str() as module):
            return module
        case ast.Tuple(elts=[ast.Constant(value=str() as text), _]):
            return text
    return None


def _is_parents(
    node: ast.stmt | ast.expr, key: str, folder: str, types: Mapping[str, str], classes: Mapping[str, str]
) -> bool:
    """Whether an entry is the parent's: its class, a pair of its type with one of its classes, an import of its folder."""
    if isinstance(node, ast.ImportFrom):
        names = {one.name for one in node.names} - {"*"}
        return folder in key.split(".") and names <= classes.keys()
    if isinstance(node, ast.Constant):
        return key in classes
    values = {one.value for one in walk(node) if isinstance(one, ast.Constant)}
    return key in types and not values.isdisjoint(classes)


def _has_own_lines(node: ast.stmt | ast.expr, lines: Sequence[str]) -> bool:
    """Whether nothing else stands on the lines of an entry but the comma behind it."""
    before = lines[node.lineno - 1][: node.col_offset]
    behind = lines[(node.end_lineno or node.lineno) - 1][node.end_col_offset :]
    return not before.strip() and behind.strip() in (("",) if isinstance(node, ast.stmt) else (",",))


def _renamed(own: str, renamer: Renamer, classes: Mapping[str, str]) -> str:
    """The lines of an entry for the new model. A class of the parent that the new model lacks, as a tokenizer, stays."""

    def new(match: re.Match[str]) -> str:
        word = match[0]
        if word in classes:
            return classes[word]
        return word if word.startswith(renamer.old_cased) else renamer.name(word)

    return re.sub(r"\w+", new, own)
