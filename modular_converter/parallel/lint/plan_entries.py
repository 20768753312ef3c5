"""Rules about the entries of parallel plans: for layers that are gone, and none for new layers."""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from modular_converter.findings import Finding, Location, Rule
from modular_converter.model.class_blocks import Members
from modular_converter.model.nodes import walk


if TYPE_CHECKING:
    from modular_converter.facts import ClassFacts, Facts, GeneratedDefinition
    from modular_converter.model.class_blocks import Members


LINEAR = ("nn.Linear", "torch.nn.Linear")
MOST_REPLACEMENTS = 20
"""The most names that are replaced in one size; more of them refer to each other in a circle."""


class LinearLayer(NamedTuple):
    """A layer `self.x = nn.Linear(…)`."""

    node: ast.expr
    """The target `self.x`."""
    features: tuple[str, str]
    """The numbers of input and output features, as expressions in fields of the configuration."""


def linear_layers(node: ast.ClassDef) -> dict[str, LinearLayer]:
    """Attribute -> linear layer of a class, for layers whose sizes are arguments of the call."""
    layers = {}
    paths = _paths(node)
    for statement in walk(node):
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            continue
        target, call = statement.targets[0], statement.value
        if ast.unparse(call.func) not in LINEAR or not ast.unparse(target).startswith("self."):
            continue
        sizes = dict(zip(("in_features", "out_features"), (_resolved(one, paths) for one in call.args)))
        sizes |= {one.arg: _resolved(one.value, paths) for one in call.keywords if one.arg}
        if "in_features" in sizes and "out_features" in sizes:
            name = ast.unparse(target).removeprefix("self.")
            layers[name] = LinearLayer(target, (sizes["in_features"], sizes["out_features"]))
    return layers


def _paths(tree: ast.AST) -> Mapping[str, ast.expr]:
    """Name -> its value, for aliases of configuration fields such as `self.size = config.hidden_size`.

    Names that are set twice, or to anything but a dotted name, are left out.
    """
    nodes = list(walk(tree))
    stored = Counter(ast.unparse(node) for node in nodes if isinstance(getattr(node, "ctx", None), ast.Store))
    found = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and _is_path(node.value):
            name = ast.unparse(node.targets[0])
            if stored[name] == 1 and name not in map(ast.unparse, ast.walk(node.value)):
                found[name] = node.value
    return found


def _is_path(node: ast.expr) -> bool:
    """Whether an expression is a dotted name: `config.text_config.hidden_size`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _resolved(node: ast.expr, paths: Mapping[str, ast.expr]) -> str:
    """The text of an expression, with each alias replaced by its value."""
    return ast.unparse(_Resolver(paths).visit(copy.deepcopy(node)))


class _Resolver(ast.NodeTransformer):
    """Replaces aliases by their values, at most `MOST_REPLACEMENTS` times, since aliases may refer to each other."""

    def __init__(self, paths: Mapping[str, ast.expr]) -> None:
        self.paths, self.left = paths, MOST_REPLACEMENTS

    def visit(self, node: ast.AST) -> ast.AST:
        value = self.paths.get(ast.unparse(node)) if isinstance(node, (ast.Name, ast.Attribute)) else None
        if value is None or not self.left:
            visited: ast.AST = self.generic_visit(node)
            return visited
        self.left -= 1
        return self.visit(copy.deepcopy(value))


TENSOR_PARALLEL = "base_model_tp_plan"


class PlanEntry(NamedTuple):
    """An entry of a plan."""

    plan: str
    pattern: str
    """The pattern of its layers: `layers.*.mlp.up_proj`."""
    node: ast.expr
    """The pattern's place in the class."""


def plan_entries(members: Members, names: Collection[str]) -> Iterator[PlanEntry]:
    """The entries of the plans of a class, in order; `names` are the attributes that hold plans."""
    for node in members.node.body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or not isinstance(node.value, ast.Dict):
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name) and target.id in names:
                yield from _entries(target.id, node.value)


def _entries(plan: str, literal: ast.Dict) -> Iterator[PlanEntry]:
    for key in literal.keys:
        if isinstance(key, ast.Constant) and isinstance(key.value, str):
            yield PlanEntry(plan, key.value, key)


PLAN_NAMES_MISSING_LAYER = Rule(
    "MC311",
    "plan-names-missing-layer",
    "an entry of a parallel plan names a layer that the generated model does not have",
)


def check_plan_names_missing_layer(facts: Facts) -> Iterator[Finding]:
    """Find plan entries of the generated configuration with a part that no generated class has as an attribute."""
    configuration, modeling = facts.files.get("configuration", {}), facts.files.get("modeling", {})
    classes = [one for one in configuration.values() if one.is_class and "_plan" in one.text] if modeling else []
    entries = [(one, entry) for one in classes for entry in plan_entries(one.members, facts.plan_names)]
    parts = {part for _, entry in entries for part in entry.pattern.split(".") if part.isidentifier()}
    missing = _missing(parts, [one for one in modeling.values() if one.is_class])
    for definition, entry in entries:
        if not missing.isdisjoint(entry.pattern.split(".")):
            yield PLAN_NAMES_MISSING_LAYER.finding(
                _place(facts, definition.name, entry),
                f"`{entry.plan}` has an entry `{entry.pattern}`, but the generated model has no such layer",
                help=f"Override `{entry.plan}` in the modular file with the layers that exist.",
            )


def _missing(parts: set[str], classes: Sequence[GeneratedDefinition]) -> set[str]:
    """The parts that no class sets as an attribute or has in a string, which may be the name of a layer."""
    # This search finds nearly all parts, in a twentieth of the time for parsing a model.
    missing = {part for part in parts if not any(f"self.{part} = " in one.text for one in classes)}
    for one in classes if missing else ():
        for node in ast.walk(one.members.node):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                missing.discard(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                missing.discard(node.value)
    return missing


def _place(facts: Facts, name: str, entry: PlanEntry) -> Location:
    """The place of an entry in the modular file; if it is inherited, the place of the class."""
    configuration = facts.classes.get(name)
    if configuration is None:
        return Location(facts.path)
    written = (own.node for own in plan_entries(configuration.members, facts.plan_names) if own[:2] == entry[:2])
    node = next(written, None)
    return facts.at_class(configuration) if node is None else facts.at_node(configuration, node)


PLAN_LACKS_NEW_LAYER = Rule(
    "MC314",
    "plan-lacks-new-layer",
    "an inherited parallel plan has no entry for a new layer beside the layers that it splits",
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
            yield PLAN_LACKS_NEW_LAYER.finding(
                facts.at_node(facts.classes[definition.name], added.node),
                f"the inherited `base_model_tp_plan` splits `{beside}` of `{definition.name}`, but has no entry for the new "
                f"`{layer}` of the same size",
                help="Override `base_model_tp_plan` in the modular file, with an entry for the layer; `modular-plan write` "
                "derives it.",
            )


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
