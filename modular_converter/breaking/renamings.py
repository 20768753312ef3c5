"""How a library renames the entries of checkpoints as it loads and saves them: tables with an entry for each type of model."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from typing import NamedTuple

from modular_converter.breaking.values import CodePlace
from modular_converter.convert.source.library import Library
from modular_converter.findings import UNPARSABLE
from modular_converter.model.nodes import parse, walk


FILE = "conversion_mapping.py"
"""The file of the package that holds the tables."""


class Renaming(NamedTuple):
    """What the tables say of one type of model."""

    text: str
    place: CodePlace


Tables = Mapping[str, list[ast.expr]]


def read_tables(path: str, library: Library) -> Tables:
    """The entries of all tables of a file, by their keys; none where it cannot be read."""
    found: dict[str, list[ast.expr]] = {}
    try:
        tree = parse(library.text_if_readable(path) or "")
    except UNPARSABLE:
        return found
    for node in walk(tree):
        if isinstance(node, ast.Dict):
            pairs = [(key, value) for key, value in zip(node.keys, node.values) if key is not None]
        elif isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            pairs = [(one.slice, node.value) for one in targets if isinstance(one, ast.Subscript)]
        else:
            continue
        for key, value in pairs:
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                found.setdefault(key.value, []).append(value)
    return found


def renaming_of(kind: str, tables: Tables, path: str) -> Renaming:
    """What the tables say of a type of model; an entry that is a text names another type whose entries count."""
    nodes = [*tables.get(kind, ())]
    for node in [*nodes]:
        if isinstance(node, ast.Constant) and node.value != kind:
            nodes += tables.get(str(node.value), ())
    return Renaming("\n".join(map(ast.unparse, nodes)), CodePlace(path, nodes[0].lineno if nodes else 1))


def tables_path(models: str) -> str:
    """The file of a package with this folder of models."""
    return os.path.join(os.path.dirname(models), FILE)
