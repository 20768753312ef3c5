"""Two models in one file: a class that the author derived from one replaces the class of the other.

With `class NewMLP(OldMLP)` and `class NewTower(OtherTower)`, the copy of `OtherMLP` would be called `NewMLP` as well.
The author's class wins, which may be intended. It is an accident if the code that uses it is only copied, and code of
the first model uses the class, too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from modular_converter.convert.examine.meaning import Meaning
from modular_converter.convert.examine.meanings import Change, origin_of
from modular_converter.convert.inherit.build import BuiltClass
from modular_converter.convert.inherit.rename_neighbours import Neighbourhood
from modular_converter.convert.inline.generated import GeneratedFile, GeneratedFiles
from modular_converter.convert.inline.needed import OWN
from modular_converter.model.module import Role, Statement
from modular_converter.model.nodes import parse


def find_met_models(
    neighbours: Neighbourhood, classes: Mapping[str, BuiltClass], files: GeneratedFiles
) -> Iterator[Change]:
    """The classes of the modular file that copied code of another model than their parent's would use."""
    for file in files.files:
        for user in file.ordered:
            source = origin_of(user, neighbours)
            if not source:
                continue
            definitions = neighbours.neighbours[source].definitions
            for name in sorted(name for name in user.uses if name in classes and name in definitions):
                built = classes[name]
                if (
                    name == user.name
                    or built.parent is None
                    or name not in file.definitions
                    or definitions.role(name) is not Role.CLASS
                ):
                    continue
                model, other = _model(built.neighbour, neighbours), _model(source, neighbours)
                if model != other and _serves(name, model, file, neighbours, classes):
                    wanted = definitions[name]
                    found = Statement(Role.CLASS, name, built.text, built.statement.line)
                    if ast.dump(parse(wanted.text)) != ast.dump(parse(found.text)):
                        yield Change(name, user, Meaning(source, wanted), Meaning(OWN, found))


def _model(source: str, neighbours: Neighbourhood) -> str:
    return neighbours.neighbours[source].neighbour.model if source else ""


def _serves(
    name: str, model: str, file: GeneratedFile, neighbours: Neighbourhood, classes: Mapping[str, BuiltClass]
) -> bool:
    """Whether other code that comes from a model uses a class: copied code, or a class with its parent there."""
    users = (one for one in file.ordered if name in one.uses and one.name != name)
    for one in users:
        built = classes.get(one.name)
        source = origin_of(one, neighbours) or (built.neighbour if built else OWN)
        if _model(source, neighbours) == model:
            return True
    return False
