"""No two public classes or functions of the package share a name."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path


PACKAGE = Path(__file__).parents[2] / "modular_converter"
ONE_IN_EACH = {
    "main": "commands",
    "run": "commands and formatters",
    "version": "formatters",
    "render": "formats of reports and of the graph",
}
"""Names that each module of a kind has, so that a caller can exchange one for another."""


def public_places() -> dict[str, list[str]]:
    """The public classes and functions of the package, each with its files."""
    places = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name[0] != "_":
                places[node.name].append(str(file.relative_to(PACKAGE)))
    return places


def test_no_two_public_things_share_a_name() -> None:
    places = public_places()
    shared = {name for name, files in places.items() if len(files) > 1}
    assert {name: places[name] for name in shared - ONE_IN_EACH.keys()} == {}
    assert ONE_IN_EACH.keys() <= shared, "a name that only one module has needs no exception"


OPAQUE = {"said", "told", "torn", "owed", "baton", "mailbox", "telling", "with_empty_weights", "twins", "unsaid"}
"""Words that say nothing of what a function or class is: a reason, a note, a buffer, a replica."""


def test_names_are_words_of_the_field() -> None:
    found = []
    for file in sorted((PACKAGE / "parallel").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", node.name)}
                found += [f"{file.relative_to(PACKAGE)}:{node.lineno} {node.name}"] if words & OPAQUE else []
    assert found == []
