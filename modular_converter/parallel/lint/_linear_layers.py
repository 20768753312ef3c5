"""The linear layers that a class assigns to itself, with their sizes."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from modular_converter.facts.nodes import walk


LINEAR = ("nn.Linear", "torch.nn.Linear")
MOST_REPLACEMENTS = 20
"""The most names in one size that are replaced; more are a circle."""


class LinearLayer(NamedTuple):
    """A layer `self.x = nn.Linear(…)`."""

    node: ast.expr
    """The target `self.x`."""
    features: tuple[str, str]
    """Features in and out, as text in names of the configuration."""


def linear_layers(node: ast.ClassDef) -> dict[str, LinearLayer]:
    """The linear layers of a class by attribute; those whose sizes are not written in the call are left out."""
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
    """The names that stand for a value of the configuration: `self.size` of `self.size = config.hidden_size`.

    A name that is set twice, or to anything but a path of names, stands for itself.
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
    """Whether this is a name or an attribute of one: `config.text_config.hidden_size`."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def _resolved(node: ast.expr, paths: Mapping[str, ast.expr]) -> str:
    """The text of an expression in which each name is replaced by the value that it stands for."""
    return ast.unparse(_Resolver(paths).visit(copy.deepcopy(node)))


class _Resolver(ast.NodeTransformer):
    """Replaces names by the values that they stand for; a bounded number, since names may stand for each other."""

    def __init__(self, paths: Mapping[str, ast.expr]) -> None:
        self.paths, self.left = paths, MOST_REPLACEMENTS

    def visit(self, node: ast.AST) -> ast.AST:
        value = self.paths.get(ast.unparse(node)) if isinstance(node, (ast.Name, ast.Attribute)) else None
        if value is None or not self.left:
            visited: ast.AST = self.generic_visit(node)
            return visited
        self.left -= 1
        return self.visit(copy.deepcopy(value))
