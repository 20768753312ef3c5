"""Other plans for a model whose layers give other numbers than the small instance promised."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from modular_converter.parallel.engine.choice.kinds_of_layers import kinds_of
from modular_converter.parallel.engine.choice.select_plan import (
    derived_plan,
    small_instance,
    small_settings,
    target_like,
)
from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.plans.patterns import matches, names_of_parts
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.tiny.fields import fields_of
from modular_converter.parallel.tiny.sizes import LAYERS
from modular_converter.parallel.trace.layer_kinds import Kind, layer_of


# A small instance of more layers takes too long.
_DEEPEST = 64


def other_plans(model: Any, plan: Plan, ranks: int) -> Iterator[tuple[Plan, str]]:
    """Plans to try after one that fails, each with its origin in words: of as many layers as the model has, then the
    same plan with all layers whole that differ from those of the small instance.
    """
    try:
        target, overrides = target_like(model), small_settings(model)
        deeper = overrides | _depths(model.config, small_instance(target, overrides).model.config)
        if deeper != overrides:
            found = derived_plan(target, deeper, ranks)
            if found.verdict.passed and found.plan.rules:
                yield (
                    found.plan,
                    f"the plan derived from a small instance of {max(_depths(model.config).values())} layers",
                )
        unknown = _unknown(kinds_of(model), kinds_of(small_instance(target, overrides).model))
    except PlanError:
        return
    if unknown:
        said = ", ".join(sorted(unknown)[:3]) + (" and others" if len(unknown) > 3 else "")
        yield (
            without(plan, model, unknown),
            f"the plan without {said}, which differ from the layers of a small instance",
        )


def _depths(config: Any, small: Any = None) -> dict[str, int]:
    """The numbers of layers in a configuration, where a small one has fewer."""
    found = {}
    for field in fields_of(config):
        value, less = getattr(config, field.name, None), getattr(small, field.name, 0)
        if LAYERS.search(field.name) and type(value) is int and type(less) is int and less < value <= _DEEPEST:
            found[field.name] = value
    return found


def _unknown(kinds: Mapping[str, Kind], small: Mapping[str, Kind]) -> set[str]:
    """The layers of which the small instance has none in the same list."""
    known = {(path.rpartition(".")[0], kind) for path, kind in small.items()}
    return {path for path, kind in kinds.items() if (path.rpartition(".")[0], kind) not in known}


def without(plan: Plan, model: torch.nn.Module, layers: set[str]) -> Plan:
    """The plan with some layers whole: patterns that reach them name the other layers one by one."""
    names = names_of_parts(model)
    rules: list[PlanRule] = []
    for rule in plan.rules:
        reached = matches(rule.pattern, names)
        left = [name for name in reached if layer_of(name) not in layers]
        rules += [rule] if len(left) == len(reached) else [replace(rule, pattern=name) for name in left]
    attributes: list[str] = []
    for attribute in plan.attributes:
        pattern, _, field = attribute.partition(":")
        reached = matches(pattern, names)
        left = [name for name in reached if layer_of(name) not in layers]
        attributes += [attribute] if len(left) == len(reached) else [f"{name}:{field}" for name in left]
    return Plan(plan.model, tuple(rules), tuple(attributes))
