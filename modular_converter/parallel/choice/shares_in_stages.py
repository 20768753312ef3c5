"""Plans for shares of stages: tensors between layers must be whole, since stages hand over whole tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from modular_converter.parallel.choice.without_data import Guesses, on_meta
from modular_converter.parallel.pipeline.asked import tensors_of
from modular_converter.parallel.pipeline.flow import flow_of, layers_entry
from modular_converter.parallel.pipeline.part_of_model import copy_without_data
from modular_converter.parallel.pipeline.plain_module import derive_pipeline
from modular_converter.parallel.plans.pipeline_plan import PipelinePlan
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import fitting
from modular_converter.parallel.proof.prove import Derived, leaves_around
from modular_converter.parallel.shard.apply import apply
from modular_converter.parallel.shard.collectives import FakeGroup
from modular_converter.parallel.solve.derive import Aim, plan_of
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.tiny.inputs import examples_of


def whole_between_layers(model: torch.nn.Module, found: Derived, size: int) -> Iterator[Plan]:
    """The plans of a module with example inputs under which layers take and return whole tensors, the best first.

    Raises ``PlanError`` if the module is no chain of layers.
    """
    inputs = examples_of(model) or {}
    stages = derive_pipeline(model, inputs)
    flow, layers = follow(found.trace), layers_entry(model, stages)
    around: frozenset[int] = frozenset()
    for entry in stages.entries:
        if entry != layers:
            around |= leaves_around(flow, entry.module)
    whole = _between(model, stages, inputs, None, size)
    for plan in (found.plan, plan_of(flow, Aim(without=around)), plan_of(flow, Aim(pairs=False))):
        if plan.rules and _between(model, stages, inputs, plan, size) == whole:
            yield plan


def _between(
    model: torch.nn.Module, stages: PipelinePlan, inputs: dict[str, Any], plan: Plan | None, size: int
) -> Any:
    """The shapes of the tensors that enter each layer, in the whole model or on one of several ranks; None if it fails."""
    made = copy_without_data(model).eval()
    try:
        if plan is not None:
            apply(made, fitting(plan, made), FakeGroup(size))
        with torch.no_grad(), Guesses():
            entering = flow_of(made, stages, on_meta(inputs), asks=True, skips=True).entering
    except Exception:  # of the module's own code, with shares that do not fit
        return None
    return {number: [tuple(one.shape) for one in tensors_of(values)] for number, values in entering.items()}
