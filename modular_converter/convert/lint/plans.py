"""MC311, MC314: parallel plans that name a layer which the generated model does not have, or lack a new one."""

from __future__ import annotations

import ast
import copy
import re
from collections import Counter
from collections.abc import Iterator

from modular_converter.convert.inherit.build import BuiltClass
from modular_converter.convert.inline.generated import GeneratedDefinition
from modular_converter.convert.lint.context import Context
from modular_converter.convert.source.module import Role
from modular_converter.diagnostics import Diagnostic, Location, locate_word


PLANS = (
    "base_model_tp_plan",
    "base_model_pp_plan",
    "base_model_ep_plan",
    "_tp_plan",
    "_pp_plan",
    "_ep_plan",
    "ep_plan",
)

_PLAN = re.compile(rf"^[ \t]+({'|'.join(PLANS)})\b[^=\n]*=[ \t]*\{{", re.MULTILINE)
_KEY = re.compile(r"(?<![fF])[\"']([\w.*]+)[\"'][ \t]*:")


def check_plans(context: Context) -> Iterator[Diagnostic]:
    """Compare the plans of the generated configuration with the attributes of the generated model."""
    configuration, modeling = context.collection.file("configuration"), context.collection.file("modeling")
    if configuration is None or modeling is None:
        return
    plans = [one for one in configuration.definitions.values() if "_plan" in one.text]
    entries = [(one, plan, entry) for one in plans for plan, entry in _entries(one.text)]
    model = "".join(one.text for one in modeling.definitions.values() if one.role is Role.CLASS) if entries else ""
    parts = {part for _, _, entry in entries for part in entry.split(".") if part.isidentifier()}
    missing = {part for part in parts if not _has_layer(model, part)}
    for definition, plan, entry in entries:
        if not missing.isdisjoint(entry.split(".")):
            from modular_converter.rules import plan_names_missing_layer

            place = _place(context, definition, entry)
            yield plan_names_missing_layer.diagnose(place, entry, plan)


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """The plans of a class that are literals: name of the plan, pattern."""
    for match in _PLAN.finditer(text):
        literal = text[match.end() :].partition("}")[0]
        for key in _KEY.findall(literal):
            yield match[1], key


def _has_layer(model: str, name: str) -> bool:
    """Whether the text of a model assigns an attribute, or has a string that may name a layer."""
    if f"self.{name} =" in model or f'"{name}"' in model:
        return True
    return re.search(rf"\bself\.{name}[ \t]*(?:,|:|=(?!=))|[\"']{name}[\"']", model) is not None


def check_uncovered(context: Context) -> Iterator[Diagnostic]:
    """Compare inherited plans with the linear layers that the modular file adds beside planned ones.

    A layer counts only where a planned one of the same class has the same features in and out: a router or a gate of
    a few values is rightly left whole, and a static look cannot tell what else a layer is for.
    """
    configuration, modeling = context.collection.file("configuration"), context.collection.file("modeling")
    if configuration is None or modeling is None:
        return
    added = {built.name: names for built in context.classes.values() if (names := _added(built))}
    if not added:
        return
    model = "".join(one.text for one in modeling.definitions.values() if one.role is Role.CLASS)
    for definition in configuration.definitions.values():
        entries = [entry.split(".") for entry in _inherited_entries(context, definition)]
        for name, layers in added.items() if entries else ():
            if name not in modeling.definitions or not _may_use(modeling.definitions[name].text, definition.name):
                continue
            holders = set(re.findall(rf"\bself\.(\w+)[ \t]*=[ \t]*{name}\(", model))
            planned = {entry[-1] for entry in entries if len(entry) > 1 and entry[-2] in holders}
            yield from _uncovered(context, name, layers, planned, {part for entry in entries for part in entry})


def _uncovered(
    context: Context, name: str, layers: list[str], planned: set[str], named: set[str]
) -> Iterator[Diagnostic]:
    features = _linears(context.classes[name].text)
    for layer in layers:
        beside = next((one for one in features if one in planned and features[one] == features.get(layer)), None)
        if layer not in named and beside is not None:
            from modular_converter.rules import plan_lacks_new_layer

            statement = context.classes[name].statement
            line = statement.line + statement.text.partition(f"self.{layer}")[0].count("\n")
            place = locate_word(context.path, layer, context.source, line)
            yield plan_lacks_new_layer.diagnose(place, layer, beside, name)


def _added(built: BuiltClass) -> list[str]:
    """The linear layers that a class of the modular file has and its parent, if it has one, does not."""
    if "Linear(" not in built.statement.text:
        return []
    before = built.parent.text if built.parent else ""
    return [name for name in _linears(built.statement.text) if not re.search(rf"\bself\.{name}\b", before)]


def _linears(text: str) -> dict[str, tuple[str, str]]:
    """Linear layers that a class assigns to itself: name -> features in and out, in names of the configuration."""
    found = {}
    tree = ast.parse(text)
    origins = _origins(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        target, call = ast.unparse(node.targets[0]), node.value
        if ast.unparse(call.func) not in ("nn.Linear", "torch.nn.Linear") or not target.startswith("self."):
            continue
        keywords = {keyword.arg: _resolved(keyword.value, origins) for keyword in call.keywords}
        given = dict(zip(("in_features", "out_features"), (_resolved(one, origins) for one in call.args))) | keywords
        if "in_features" in given and "out_features" in given:
            found[target.removeprefix("self.")] = (given["in_features"], given["out_features"])
    return found


def _origins(tree: ast.AST) -> dict[str, ast.expr]:
    """What a class calls the values of its configuration: ``self.size = config.hidden_size``.

    A name that is set twice, or to anything else than the path of another name, stands for itself.
    """
    nodes = list(ast.walk(tree))
    stored = Counter(ast.unparse(node) for node in nodes if isinstance(getattr(node, "ctx", None), ast.Store))
    found = {}
    for node in nodes:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and _is_path(node.value):
            name = ast.unparse(node.targets[0])
            if stored[name] == 1 and name not in map(ast.unparse, ast.walk(node.value)):
                found[name] = node.value
    return found


def _is_path(node: ast.expr) -> bool:
    """``config.text_config.hidden_size``: a name, or an attribute of one."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _resolved(node: ast.expr, origins: dict[str, ast.expr]) -> str:
    """The text of an expression in which the names of a class are replaced by what they stand for."""
    return ast.unparse(_Resolver(origins).visit(copy.deepcopy(node)))


class _Resolver(ast.NodeTransformer):
    """Replaces names by what they stand for, a few times at most: names may stand for each other."""

    def __init__(self, origins: dict[str, ast.expr]) -> None:
        self.origins, self.left = origins, 20

    def visit(self, node: ast.AST) -> ast.AST:
        value = self.origins.get(ast.unparse(node)) if isinstance(node, (ast.Name, ast.Attribute)) else None
        if value is None or not self.left:
            visited: ast.AST = self.generic_visit(node)
            return visited
        self.left -= 1
        return self.visit(copy.deepcopy(value))


def _inherited_entries(context: Context, definition: GeneratedDefinition) -> list[str]:
    """The tensor-parallel entries of a configuration class, unless the modular file writes them itself."""
    built = context.classes.get(definition.name)
    if "base_model_tp_plan" not in definition.text or (built and "base_model_tp_plan" in built.statement.text):
        return []
    return [entry for plan, entry in _entries(definition.text) if plan == "base_model_tp_plan"]


def _may_use(text: str, configuration: str) -> bool:
    """Whether a class of the model may be built from a configuration class: it names it, or no class at all."""
    named = set(re.findall(r"\bconfig: (\w+)", text))
    return not named or configuration in named


def _place(context: Context, definition: GeneratedDefinition, entry: str) -> Location:
    """The entry where the modular file writes it, else the class that inherits it."""
    built = context.classes.get(definition.name)
    if built is None:
        return Location(context.path)
    written = built.statement.text.find(f'"{entry}"')
    if written < 0:
        return context.at_class(built)
    line = built.statement.line + built.statement.text.count("\n", 0, written)
    column = written - built.statement.text.rfind("\n", 0, written)
    return Location(context.path, line, column, line, column + len(entry) + 2)
