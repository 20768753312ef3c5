"""Parallel plans that a configuration class writes as literals."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import NamedTuple

from modular_converter.model.members import Members


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
