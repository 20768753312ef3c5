"""MC318: a removed attribute of a configuration that generated code reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.model.nodes import parse
from modular_converter.rules._examples import configuration_old, examples, old_mlp


if TYPE_CHECKING:
    from modular_converter.facts import Facts


RULE = Rule(
    code="MC318",
    name="removed-setting-read",
    severity=Severity.WARNING,
    summary="generated code reads an attribute that the configuration no longer has",
    explanation="""\
`mlp_bias = AttributeError()` removes the attribute from the configuration class. A generated class still reads
`config.mlp_bias`, mostly in a method that it inherits, and would fail with an `AttributeError`.

Override that method without the attribute, or keep the attribute.
""",
    examples=examples(
        configuration_old("""\
class OldConfig:
    hidden_size: int = 8
    mlp_bias: bool = False
"""),
        old_mlp("""\
    def __init__(self, config):
        super().__init__()
        self.up_proj = nn.Linear(config.hidden_size, 8, bias=config.mlp_bias)
"""),
        bad="""\
from ..old.configuration_old import OldConfig
from ..old.modeling_old import OldMLP


class NewConfig(OldConfig):
    mlp_bias = AttributeError()


class NewMLP(OldMLP):
    pass


__all__ = ["NewConfig", "NewMLP"]
""",
        good="""\
from torch import nn

from ..old.configuration_old import OldConfig
from ..old.modeling_old import OldMLP


class NewConfig(OldConfig):
    mlp_bias = AttributeError()


class NewMLP(OldMLP):
    def __init__(self, config):
        super().__init__(config)
        self.up_proj = nn.Linear(config.hidden_size, 8, bias=False)


__all__ = ["NewConfig", "NewMLP"]
""",
    ),
)


def diagnose(location: Location, attribute: str, name: str, readers: tuple[str, ...]) -> Finding:
    """`readers` are the generated definitions that read `config.<attribute>`, which the class `name` removes."""
    listed = ", ".join(f"`{reader}`" for reader in readers)
    return Finding(
        RULE,
        location,
        f"`{name}` removes `{attribute}`, but the generated {listed} still reads `config.{attribute}`",
        help=f"Override the method that reads it without `config.{attribute}`, or keep the attribute.",
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find removed attributes of configurations that no configuration of the model has, and that generated code reads."""
    for heir, _ in facts.heirs:
        for target in heir.members.removals if "= AttributeError(" in heir.text else ():
            readers = () if _is_known(facts, heir.name, target.id) else _readers(facts, heir.name, target.id)
            if readers:
                yield diagnose(facts.at_node(heir, target), target.id, heir.name, readers)


def _is_known(facts: Facts, name: str, attribute: str) -> bool:
    """Whether a class beside `name` binds an attribute, or names it in a string, as `attribute_map` does."""
    classes = [one for one in facts.file_of(name).values() if one.is_class]
    return any(
        attribute in one.text
        and (
            one.members.binds(attribute)
            or any(isinstance(node, ast.Constant) and node.value == attribute for node in ast.walk(one.members.node))
        )
        for one in classes
    )


def _readers(facts: Facts, name: str, attribute: str) -> tuple[str, ...]:
    """The definitions of the other generated files that read `config.<attribute>`, whatever the object that holds it."""
    read = re.compile(rf"\bconfig\s*\.\s*{attribute}\b")
    beside = facts.file_of(name)
    others = (one for one in facts.generated.values() if one.name not in beside and attribute in one.text)
    return tuple(one.name for one in others if read.search(one.text) and _reads(one.text, attribute))


def _reads(text: str, attribute: str) -> bool:
    """Whether code loads `config.<attribute>` or `self.config.<attribute>`, and does so under no condition."""
    waiting: list[ast.AST] = [parse(text)]
    while waiting:
        node = waiting.pop()
        if (
            isinstance(node, ast.Attribute)
            and node.attr == attribute
            and isinstance(node.ctx, ast.Load)
            and getattr(node.value, "id", getattr(node.value, "attr", "")) == "config"
        ):
            return True
        if not isinstance(node, (ast.IfExp, ast.If)):
            waiting += ast.iter_child_nodes(node)
    return False
