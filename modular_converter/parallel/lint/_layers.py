"""Linear layers of a class and entries of its plan, as the rules read them."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from modular_converter.model.members import Members
from modular_converter.model.nodes import walk


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
