"""MC333: an attribute of the configuration that is read under a misspelt name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import SIMILAR, Finding, Location, Rule, Severity, nearest
from modular_converter.model.nodes import walk
from modular_converter.rules._examples import configuration_old, examples


if TYPE_CHECKING:
    from modular_converter.facts import ClassFacts, Facts

NEW = """\
from torch import nn

from ..old.configuration_old import OldConfig


class NewConfig(OldConfig):
    gate_rank: int = 4


class NewGate(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.gate = nn.Linear(config.hidden_size, config.{setting})


__all__ = ["NewConfig"]
"""

RULE = Rule(
    code="MC333",
    name="unknown-setting",
    severity=Severity.WARNING,
    summary="code reads a setting that the model's configuration does not have, under a name close to one that it has",
    explanation="""\
A class of the modular file reads `config.x`. The generated configuration has no `x`, nor has a class that it inherits
from, as far as these can be read, but it has an attribute of nearly that name. The read would fail with an
`AttributeError`.

Correct the name, or add the attribute to the configuration.
""",
    examples=examples(
        configuration_old("""\
class OldConfig:
    hidden_size: int = 8
"""),
        bad=NEW.format(setting="gate_rnk"),
        good=NEW.format(setting="gate_rank"),
    ),
)


def diagnose(location: Location, attribute: str, known: str) -> Finding:
    """`attribute` is read, and the configuration has `known`."""
    return Finding(
        RULE,
        location,
        f"`config.{attribute}` is no attribute of the model's configuration",
        help=f"Did you mean `{known}`? Correct the name, or add `{attribute}` to the configuration.",
    )


def check(facts: Facts) -> Iterator[Finding]:
    """Find reads of `config.x` in the classes of the modular file for which the configuration has only a close name."""
    configurations = facts.files.get("configuration", {})
    words = frozenset[str]().union(*(_words(one.text) for one in configurations.values()))
    for one in facts.classes.values() if words else ():
        # The text tells of nearly all classes that they read no other setting: parsing takes longer than all else here.
        if one.name in configurations or words.issuperset(re.findall(r"config\s*\.\s*(\w+)", one.text)):
            continue
        own = frozenset[str]().union(*(one.members.names for one in configurations.values() if one.is_class))
        for node in _reads(one):
            close = nearest(node.attr, own, SIMILAR) if node.attr not in words else None
            if close and not _is_inherited(node.attr, facts):
                yield diagnose(facts.at_node(one, node), node.attr, close)


def _words(text: str) -> set[str]:
    """The words of a class, those in its texts and comments, too: `attribute_map` names settings in texts."""
    return {*re.findall(r"\w+", text)}


def _is_inherited(setting: str, facts: Facts) -> bool:
    """Whether a configuration has a setting from an ancestor that the generated file does not hold."""
    parents = (parent for heir, parent in facts.heirs if heir.name in facts.files["configuration"])
    return any(setting in facts.attributes_of(parent).names for parent in parents)


def _reads(one: ClassFacts) -> Iterator[ast.Attribute]:
    """The reads of `config.x` and `self.config.x` that the parent does not have; calls of its methods are left out."""
    nodes = walk(one.members.node)
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in called:
            is_config = getattr(node.value, "id", getattr(node.value, "attr", "")) == "config"
            if is_config and (one.parent is None or node.attr not in one.parent.text):
                yield node
