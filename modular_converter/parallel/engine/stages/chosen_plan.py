"""The pipeline plan of a model in hand: derived from a small instance of its class and settings, and proven on it."""

from __future__ import annotations

from typing import Any

from modular_converter.parallel.engine.choice.small_instances import small_instance, small_settings, target_like
from modular_converter.parallel.engine.group.agreed_plan import from_first_process
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.pipeline.derive import derive_pipeline
from modular_converter.parallel.pipeline.flow import layers_entry
from modular_converter.parallel.pipeline.prove import verify_pipeline
from modular_converter.parallel.plans.pipeline_plan import PipelinePlan
from modular_converter.parallel.proof.situations import with_mask
from modular_converter.parallel.shard.collectives import ProcessGroup
from modular_converter.parallel.trace.record import record


def pipeline_plan(model: Any) -> PipelinePlan:
    """The derived plan.

    Raises:
        PlanError: no small instance can be built, the model is no chain of layers, or its stages give other numbers.
    """
    target = target_like(model)
    small = small_instance(target, small_settings(model))
    inputs = with_mask(small.model, small.inputs)
    plan = derive_pipeline(record(small.model, inputs, target.name))
    if isinstance(plan, str):
        raise ApplyError(f"{target.name} cannot be cut into stages: {plan}")
    verdict = verify_pipeline(small.model, plan, inputs, whole_batch=True)
    if not verdict.passed:
        raise ApplyError(f"{target.name} in stages gives other numbers than whole: {verdict.reason}")
    layers_entry(model, plan)
    return plan


def agreed_pipeline_plan(model: Any, given: PipelinePlan | None, group: ProcessGroup) -> PipelinePlan:
    """The plan that the first process has, on all processes; raises ``ApplyError`` on all of them alike."""
    (text,) = from_first_process(lambda: (str(given or pipeline_plan(model)),), group)
    return PipelinePlan.parse(text)
