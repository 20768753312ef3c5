"""MC331: a configuration that gives itself the `model_type` of another model."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.rules._examples import configuration_old, examples


if TYPE_CHECKING:
    from modular_converter.facts import Facts


RULE = Rule(
    code="MC331",
    name="model-type-of-another",
    severity=Severity.WARNING,
    summary="a configuration has the `model_type` of another model",
    explanation="""\
The library finds the classes of a model by the `model_type` of its configuration. This configuration writes that of
the neighbour that it inherits from, so a saved model of it would be loaded as the neighbour.

Drop the line: the parent's `model_type` is renamed by itself. Or write the type of your model.
""",
    examples=examples(
        configuration_old("""\
class OldConfig:
    model_type = "old"
    hidden_size: int = 8
"""),
        bad="""\
from ..old.configuration_old import OldConfig


class NewConfig(OldConfig):
    model_type = "old"
    hidden_size: int = 16


__all__ = ["NewConfig"]
""",
        good="""\
from ..old.configuration_old import OldConfig


class NewConfig(OldConfig):
    model_type = "new"
    hidden_size: int = 16


__all__ = ["NewConfig"]
""",
    ),
)


def diagnose(location: Location, model_type: str, name: str) -> Finding:
    """`name` is the configuration class, `model_type` that of its parent."""
    return Finding(
        RULE,
        location,
        f'`model_type = "{model_type}"` of `{name}` is that of its parent: a saved model would be loaded as that one',
        help="Drop the line, since the parent's is renamed by itself, or write the type of your model.",
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find classes that assign the `model_type` that the class they inherit from has in its own file."""
    for heir, parent in facts.heirs:
        for node in heir.members.node.body if "model_type" in heir.text else ():
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
                continue
            if [getattr(one, "id", "") for one in node.targets] == ["model_type"] and node.value.value == (
                parent.neighbour.model
            ):
                yield diagnose(facts.at_node(heir, node), str(node.value.value), heir.name)
