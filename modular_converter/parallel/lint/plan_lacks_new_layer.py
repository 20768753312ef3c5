"""MC314: a new layer that is missing from an inherited parallel plan."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from modular_converter.findings import Finding, Location, Rule, Severity
from modular_converter.model.nodes import walk
from modular_converter.parallel.lint._layers import TENSOR_PARALLEL, LinearLayer, linear_layers, plan_entries


if TYPE_CHECKING:
    from modular_converter.facts import ClassFacts, Facts, GeneratedDefinition
    from modular_converter.model.members import Members


RULE = Rule(
    code="MC314",
    name="plan-lacks-new-layer",
    severity=Severity.WARNING,
    summary="an inherited parallel plan has no entry for a new layer beside the layers that it splits",
    explanation="""\
The modular file adds a linear layer to a class. Another layer of this class, with the same features in and out, is
split over devices by a plan that the configuration inherits, but the plan has no entry for the new one. It then stays
whole on every device beside layers that are split: the model needs more memory than it should, and where the two
meet, the shapes do not fit.

Override the plan in the configuration of the modular file, with an entry for the new layer.
`modular-plan write` finds the plan that the model needs and puts it there.
""",
)


def diagnose(location: Location, layer: str, beside: str, class_name: str) -> Finding:
    """The finding for a new `layer` of `class_name`; `beside` is a layer of the same size in it, which the plan splits."""
    return Finding(
        RULE,
        location,
        f"the inherited `base_model_tp_plan` splits `{beside}` of `{class_name}`, but has no entry for the new "
        f"`{layer}` of the same size",
        help="Override `base_model_tp_plan` in the modular file, with an entry for the layer; `modular-plan write` "
        "derives it.",
    )


def check_plan_lacks_new_layer(facts: Facts) -> Iterator[Finding]:
    """Find linear layers that the modular file adds beside layers of the same size in an inherited plan.

    Layers of other sizes do not count: a router, or a gate of a few values, needs no entry, and a static check cannot know
    the purpose of other layers.
    """
    configuration, modeling = facts.files.get("configuration", {}), facts.files.get("modeling", {})
    inherited = {name: entries for name, one in configuration.items() if (entries := _inherited_entries(facts, one))}
    added = {name: _added(one) for name, one in facts.classes.items() if inherited and name in modeling}
    for configuration_name, entries in inherited.items():
        for name, layers in added.items():
            if layers and _may_use(modeling[name].members, configuration_name):
                holders = set(_holders(name, modeling.values()))
                planned = {parts[-1] for parts in entries if len(parts) > 1 and parts[-2] in holders}
                named = {part for parts in entries for part in parts}
                yield from _uncovered(facts, modeling[name], layers, planned, named)


def _uncovered(
    facts: Facts,
    definition: GeneratedDefinition,
    layers: Mapping[str, LinearLayer],
    planned: Collection[str],
    named: Collection[str],
) -> Iterator[Finding]:
    """Findings for layers of a class without an entry, beside a layer of the same size with an entry."""
    sizes = {name: layer.features for name, layer in linear_layers(definition.members.node).items()}
    for layer, added in layers.items():
        beside = next((name for name in sizes if name in planned and sizes[name] == sizes.get(layer)), None)
        if layer not in named and beside is not None:
            place = facts.at_node(facts.classes[definition.name], added.node)
            yield diagnose(place, layer, beside, definition.name)


def _added(one: ClassFacts) -> Mapping[str, LinearLayer]:
    """The linear layers of a class of the modular file that its parent does not mention."""
    layers = linear_layers(one.members.node) if "Linear(" in one.text else {}
    known = _attributes(one.parent.members) if layers and one.parent else ()
    return {name: layer for name, layer in layers.items() if name not in known}


def _attributes(members: Members) -> set[str]:
    return {node.attr for node in walk(members.node) if isinstance(node, ast.Attribute)}


def _inherited_entries(facts: Facts, definition: GeneratedDefinition) -> list[list[str]]:
    """The tensor-parallel patterns of a configuration class, split at dots; empty if the modular file sets the plan."""
    own = facts.classes.get(definition.name)
    if TENSOR_PARALLEL not in definition.text or (own and TENSOR_PARALLEL in own.members.names):
        return []
    return [
        entry.pattern.split(".")
        for entry in plan_entries(definition.members, facts.plan_names)
        if entry.plan == TENSOR_PARALLEL
    ]


def _may_use(members: Members, configuration: str) -> bool:
    """Whether methods of a class may take this configuration: an annotation of `config` names it, or there is none."""
    arguments = (argument for method in members.methods for argument in method.node.args.args)
    annotations = [one.annotation for one in arguments if one.arg == "config" and one.annotation is not None]
    named = {word for one in annotations for word in re.findall(r"\w+", ast.unparse(one))}
    return not named or configuration in named


def _holders(name: str, definitions: Iterable[GeneratedDefinition]) -> Iterator[str]:
    """The attributes that hold an instance of a class in the model: `mlp` for `self.mlp = NewMLP(…)`."""
    for definition in definitions:
        if definition.is_class and f"{name}(" in definition.text:
            for node in walk(definition.members.node):
                target = node.targets[0] if isinstance(node, ast.Assign) else None
                call = node.value if isinstance(node, ast.Assign) else None
                is_instance = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name
                if isinstance(target, ast.Attribute) and is_instance:
                    yield target.attr
