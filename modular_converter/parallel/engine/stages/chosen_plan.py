"""The pipeline plan of a user's model: derived from a small instance with its class and settings, and proven on it."""

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

    Raises ``PlanError`` if no small instance can be built, the model is no chain of layers, or stages give other numbers.
    """
    target = target_like(model)
    small = small_instance(target, small_settings(model))
    plan = proven_pipeline_plan(small.model, small.inputs, target.name)
    layers_entry(model, plan)
    return plan


def proven_pipeline_plan(model: Any, inputs: Mapping[str, Any], name: str) -> PipelinePlan:
    """The first derived plan of a small model whose proof holds; there is a plan for each stack of layers.

    Raises ``ApplyError`` if the model is no chain of layers, or stages give other numbers.
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
    """The first process's plan, on all processes. Raises ``ApplyError`` on all processes if it has none."""
    (text,) = from_first_process(lambda: (str(given or pipeline_plan(model)),), group)
    return PipelinePlan.parse(text)
