"""A neighbour's class that a generated file imports for the child's code, and also holds as a copy for inherited code.

With inheritance the two are one class: members of an enumeration compare as equal, and an exception is caught. An
heir's instances are also instances of its parent, from which the generated class does not inherit.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from modular_converter.convert.examine.definitions import globals_read
from modular_converter.convert.inherit.build import BuiltClass
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood
from modular_converter.convert.inline.generated import GeneratedFiles
from modular_converter.model.module import Role
from modular_converter.model.nodes import parse, walk


KIND_TESTS = ("isinstance", "issubclass")


class CopiedClass(NamedTuple):
    """A class of a neighbour beside its copy."""

    name: str
    copy: str
    """The name of the copy."""
    neighbour: str
    user: str
    """The definition of the modular file that uses the class itself."""
    line: int
    """The line of that definition in the modular file."""


def find_copied_classes(neighbours: Neighbourhood, files: GeneratedFiles) -> Iterator[CopiedClass]:
    """The classes that a file both imports and copies, each with its first user."""
    target = neighbours.target
    for name, (dotted, new) in neighbours.taken.items():
        renamed = neighbours.neighbours[dotted]
        if name == new or new not in renamed.definitions or renamed.definitions.role(new) is not Role.CLASS:
            continue
        for file in files.files:
            copy = file.definitions.get(new)
            if copy is None or copy.origin.how != "copied" or copy.origin.path != renamed.neighbour.path:
                continue
            own = (one for one in file.ordered if one.origin.path == target.path and name in one.uses)
            user = next((one for one in own if name in globals_read(one.text)), None)
            if user is not None:
                yield CopiedClass(name, new, dotted, user.name, user.origin.line)


class LostParent(NamedTuple):
    """A test for the parent of a class of the modular file, which the generated class does not pass."""

    parent: str
    heir: str
    neighbour: str
    user: str
    line: int
    """The line of the definition `user` in the modular file."""


def find_lost_parents(
    neighbours: Neighbourhood, classes: Mapping[str, BuiltClass], files: GeneratedFiles
) -> Iterator[LostParent]:
    """The parents that code of the modular file tests or catches, each with its first user and heir."""
    heirs: dict[str, str] = {}
    for name, built in classes.items():
        base = neighbours.resolution.parent(built.statement) if built.parent else ""
        if base:
            heirs.setdefault(base, name)
    definitions = [one for file in files.files for one in file.ordered if one.origin.path == neighbours.target.path]
    for parent, heir in heirs.items():
        user = next((one for one in definitions if parent in one.uses and _tests_for(one.text, parent)), None)
        if user is not None and parent in globals_read(user.text):
            yield LostParent(parent, heir, neighbours.taken[parent][0], user.name, user.origin.line)


def _tests_for(text: str, name: str) -> bool:
    """Whether a definition asks whether something is of a class: `isinstance`, `except`, `case`, `type(x) is`."""
    return any(
        isinstance(part, ast.Name) and part.id == name
        for node in walk(parse(text))
        for place in _tested(node)
        for part in walk(place)
    )


def _tested(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in KIND_TESTS:
        return node.args[1:]
    if isinstance(node, ast.Compare):
        return [node.left, *node.comparators]
    if isinstance(node, ast.MatchClass):
        return [node.cls]
    return [node.type] if isinstance(node, ast.ExceptHandler) and node.type else []
