"""Configurations: their attributes, and their names."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from modular_converter.findings import SIMILAR, Finding, Rule, nearest
from modular_converter.model.nodes import parse, walk, walk_until


if TYPE_CHECKING:
    from modular_converter.facts import ClassFacts, Facts


REMOVED_SETTING_READ = Rule(
    "MC318", "removed-setting-read", "generated code reads an attribute that the configuration no longer has"
)


def check_removed_setting_read(facts: Facts) -> Iterator[Finding]:
    """Find removed attributes of configurations that no configuration of the model has, and that generated code reads."""
    for heir, _ in facts.heirs:
        for target in heir.members.removals if "= AttributeError(" in heir.text else ():
            name = target.id
            readers = () if _is_known(facts, heir.name, name) else _readers(facts, heir.name, name)
            if readers:
                listed = ", ".join(f"`{reader}`" for reader in readers)
                yield REMOVED_SETTING_READ.finding(
                    facts.at_node(heir, target),
                    f"`{heir.name}` removes `{name}`, but the generated {listed} still reads `config.{name}`",
                    help=f"Override the method that reads it without `config.{name}`, or keep the attribute.",
                )


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
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == attribute
        and isinstance(node.ctx, ast.Load)
        and getattr(node.value, "id", getattr(node.value, "attr", "")) == "config"
        for node in walk_until((ast.IfExp, ast.If), parse(text))
    )


MODEL_TYPE_OF_ANOTHER = Rule("MC331", "model-type-of-another", "a configuration has the `model_type` of another model")


def check_model_type_of_another(facts: Facts) -> Iterator[Finding]:
    """Find classes that assign the `model_type` that the class they inherit from has in its own file."""
    for heir, parent in facts.heirs:
        for node in heir.members.node.body if "model_type" in heir.text else ():
            if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Constant):
                continue
            if [getattr(one, "id", "") for one in node.targets] == ["model_type"] and node.value.value == (
                parent.neighbour.model
            ):
                yield MODEL_TYPE_OF_ANOTHER.finding(
                    facts.at_node(heir, node),
                    f'`model_type = "{node.value.value}"` of `{heir.name}` is that of its parent: a saved model would be loaded '
                    "as that one",
                    help="Drop the line, since the parent's is renamed by itself, or write the type of your model.",
                )


UNKNOWN_SETTING = Rule(
    "MC333",
    "unknown-setting",
    "code reads a setting that the model's configuration does not have, under a name close to one that it has",
)


def check_unknown_setting(facts: Facts) -> Iterator[Finding]:
    """Find reads of `config.x` in the classes of the modular file for which the configuration has only a close name."""
    configurations = facts.files.get("configuration", {})
    # Those in texts and comments, too: `attribute_map` names settings in texts.
    words = frozenset[str]().union(*(re.findall(r"\w+", one.text) for one in configurations.values()))
    for one in facts.classes.values() if words else ():
        # The text tells of nearly all classes that they read no other setting: parsing takes longer than all else here.
        if one.name in configurations or words.issuperset(re.findall(r"config\s*\.\s*(\w+)", one.text)):
            continue
        own = frozenset[str]().union(*(one.members.names for one in configurations.values() if one.is_class))
        for node in _reads_setting(one):
            close = nearest(node.attr, own, SIMILAR) if node.attr not in words else None
            if close and not _is_inherited(node.attr, facts):
                yield UNKNOWN_SETTING.finding(
                    facts.at_node(one, node),
                    f"`config.{node.attr}` is no attribute of the model's configuration",
                    help=f"Did you mean `{close}`? Correct the name, or add `{node.attr}` to the configuration.",
                )


def _is_inherited(setting: str, facts: Facts) -> bool:
    """Whether a configuration has a setting from an ancestor that the generated file does not hold."""
    parents = (parent for heir, parent in facts.heirs if heir.name in facts.files["configuration"])
    return any(setting in facts.attributes_of(parent).names for parent in parents)


def _reads_setting(one: ClassFacts) -> Iterator[ast.Attribute]:
    """The reads of `config.x` and `self.config.x` that the parent does not have; calls of its methods are left out."""
    nodes = walk(one.members.node)
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and id(node) not in called:
            is_config = getattr(node.value, "id", getattr(node.value, "attr", "")) == "config"
            if is_config and (one.parent is None or node.attr not in one.parent.text):
                yield node
