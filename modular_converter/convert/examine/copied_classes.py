"""A neighbour's class that a generated file imports for the child's code, and also holds as a copy for inherited code.

With inheritance the two are one class: members of an enumeration compare as equal, and an exception is caught.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from modular_converter.convert.examine.code import globals_read
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood
from modular_converter.convert.inline.generated import GeneratedFiles
from modular_converter.convert.source.module import Role


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
