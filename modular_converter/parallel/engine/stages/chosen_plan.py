"""The pipeline plan of a model in hand: derived from a small instance of its class and settings, and proven on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modular_converter.parallel.engine.choice.small_instances import small_instance, small_settings, target_like
from modular_converter.parallel.engine.group.agreed_plan import from_first_process
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.pipeline.derive import derive_pipelines
from modular_converter.parallel.pipeline.flow import layers_entry
from modular_converter.parallel.pipeline.prove import verify_pipeline
from modular_converter.parallel.plans.pipeline_plan import PipelinePlan
from modular_converter.parallel.proof.situations import with_mask
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.trace.record import record


def pipeline_plan(model: Any) -> PipelinePlan:
    """The derived plan.

    Raises ``PlanError`` if no small instance can be built, the model is no chain of layers, or its stages give other
    numbers.
    """
    target = target_like(model)
    small = small_instance(target, small_settings(model))
    plan = proven_pipeline_plan(small.model, small.inputs, target.name)
    layers_entry(model, plan)
    return plan


def proven_pipeline_plan(model: Any, inputs: Mapping[str, Any], name: str) -> PipelinePlan:
    """The first plan that is derived from a small model and proven on it; of several stacks of layers any may be divided.

    Raises ``ApplyError`` if the model is no chain of layers, or its stages give other numbers.
    """
    inputs = with_mask(model, inputs)
    plans = derive_pipelines(record(model, inputs, name), skips=True)
    if isinstance(plans, str):
        raise ApplyError(f"{name} cannot be cut into stages: {plans}")
    reasons = []
    for plan in plans:
        verdict = verify_pipeline(model, plan, inputs, whole_batch=True)
        if verdict.passed:
            return plan
        reasons.append(verdict.reason)
    raise ApplyError(f"{name} in stages gives other numbers than whole: {reasons[0]}")


def agreed_pipeline_plan(model: Any, given: PipelinePlan | None, group: ProcessGroup) -> PipelinePlan:
    """The plan that the first process has, on all processes; raises ``ApplyError`` on all of them alike."""
    (text,) = from_first_process(lambda: (str(given or pipeline_plan(model)),), group)
    return PipelinePlan.parse(text)
