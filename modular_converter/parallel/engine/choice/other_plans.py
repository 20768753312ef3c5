"""Further plans for a model whose layers give wrong numbers on the ranks, although the small instance agreed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from modular_converter.parallel.engine.choice.small_instances import (
    depth_fields,
    derived_plan,
    settings_with_layers,
    small_settings,
    target_like,
)
from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.plans.plan import Plan


def other_plans(model: Any, ranks: int) -> Iterator[tuple[Plan, str]]:
    """Plans to try after one that fails, each with its origin in words: the plan of a small instance with the model's
    number of layers.
    """
    try:
        target, overrides = target_like(model), small_settings(model)
        deeper = settings_with_layers(model, target, overrides)
        if deeper == overrides:
            return
        found = derived_plan(target, deeper, ranks)
    except PlanError:
        return
    if found.verdict.passed and found.plan.rules:
        depth = max(depth_fields(model.config).values(), default=0)
        yield found.plan, f"the plan derived from a small instance of {depth} layers"
