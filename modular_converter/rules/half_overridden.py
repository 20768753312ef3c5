"""MC323: an override of one half of a member, whose other half stays."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import ClassFinding, Finding, Location, Rule, Severity, finding_at
from modular_converter.model.overriding import decorated_by, is_property, is_removal, method_key
from modular_converter.rules._examples import configuration_old, examples


if TYPE_CHECKING:
    from modular_converter.facts import TwoClasses


RULE = Rule(
    code="MC323",
    name="half-overridden",
    severity=Severity.WARNING,
    summary="an override of one half of a member, where the other half does not follow",
    explanation="""\
Some members of a class have two halves: a field of a dataclass has an annotation and a value, a property has a getter
and a setter. `width = 32` takes the place of the parent's `width: int = 16`, and the generated class has no such field
any more. A getter without a setter takes the place of the parent's getter alone, and the parent's setter stays, where
inheritance would leave the property without one.

Write both halves.
""",
    examples=examples(
        configuration_old("""\
from ...configuration_utils import PreTrainedConfig


class OldConfig(PreTrainedConfig):
    width: int = 16

    @property
    def depth(self):
        return self.num_layers

    @depth.setter
    def depth(self, value):
        self.num_layers = value
"""),
        bad="""\
from ..old.configuration_old import OldConfig


class NewConfig(OldConfig):
    width = 32


__all__ = ["NewConfig"]
""",
        good="""\
from ..old.configuration_old import OldConfig


class NewConfig(OldConfig):
    width: int = 32


__all__ = ["NewConfig"]
""",
    ),
)


def annotation_lost(location: Location, name: str, annotation: str) -> Finding:
    """The parent has the field `name: annotation`, the child assigns to `name` alone."""
    return Finding(
        RULE,
        location,
        f"`{name}` loses the parent's annotation `{annotation}`, without which it is no field of a dataclass",
        help=f"Write `{name}: {annotation} = …`.",
    )


def accessor_kept(location: Location, name: str, accessor: str) -> Finding:
    """The child has a getter of `name`, the parent `@name.accessor` too."""
    return Finding(
        RULE,
        location,
        f"the property `{name}` keeps the parent's {accessor}, which inheritance would not give it",
        help=f"Write the {accessor} out below your `{name}`, or write `{name} = property(…)`, which has none.",
    )


def compare(classes: TwoClasses) -> Iterator[ClassFinding]:
    """Find fields that lose their annotation, and properties with a getter of the child and a setter of the parent."""
    annotations = {
        node.target.id: node.annotation
        for node in (member.node for member in classes.parent.members)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    methods = [member.function for member in classes.child.members if member.is_function]
    own = set(map(method_key, methods))
    for member in classes.child.members:
        node = member.node
        for target in node.targets if isinstance(node, ast.Assign) and not is_removal(member) else ():
            if isinstance(target, ast.Name) and target.id in annotations:
                annotation = ast.unparse(annotations[target.id])
                yield finding_at(node, annotation_lost, target.id, annotation)
    for accessor in (member.function for member in classes.parent.members if member.is_function):
        name = accessor.name
        getter = next((one for one in methods if one.name == name and not decorated_by(one)), None)
        if getter is None or not is_property(getter, classes.added) or decorated_by(accessor) != name:
            continue
        if method_key(accessor) not in own:
            kept = method_key(accessor).rpartition(".")[2]
            yield finding_at(getter, accessor_kept, name, kept)
