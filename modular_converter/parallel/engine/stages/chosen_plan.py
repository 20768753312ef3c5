"""The pipeline plan of a user's model: derived from a small instance with its class and settings, and proven on it."""

from __future__ import annotations

from typing import Any

from modular_converter.parallel.choice.small_instances import small_instance, small_settings, target_like
from modular_converter.parallel.engine.group.agreed_plan import from_first_process
from modular_converter.parallel.pipeline.flow import layers_entry
from modular_converter.parallel.pipeline.prove import derive_pipeline, proven_pipeline_plan
from modular_converter.parallel.plans.pipeline_plan import PipelinePlan
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.tiny.inputs import examples_of


def pipeline_plan(model: Any) -> PipelinePlan:
    """The derived plan; of the model itself if it has example inputs.

    Raises ``PlanError`` if no small instance can be built, the model is no chain of layers, or stages give other numbers.
    """
    examples = examples_of(model)
    if examples is not None:
        return derive_pipeline(model, examples)
    target = target_like(model)
    small = small_instance(target, small_settings(model))
    plan = proven_pipeline_plan(small.model, small.inputs, target.name)
    layers_entry(model, plan)
    return plan


def agreed_pipeline_plan(model: Any, given: PipelinePlan | None, group: ProcessGroup) -> PipelinePlan:
    """The first process's plan, on all processes. Raises ``ApplyError`` on all processes if it has none."""
    (text,) = from_first_process(lambda: (str(given or pipeline_plan(model)),), group)
    return PipelinePlan.parse(text)
