"""The pipeline plan of a plain ``nn.Module``, which has no configuration, from example inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.pipeline.derive import derive_pipelines
from modular_converter.parallel.pipeline.prove import verify_pipeline
from modular_converter.parallel.plans.pipeline_plan import PipelinePlan
from modular_converter.parallel.proof.plain_module import small_copy
from modular_converter.parallel.proof.situations import with_mask
from modular_converter.parallel.trace.record import record


def derive_pipeline(module: torch.nn.Module, inputs: Mapping[str, Any] | Sequence[Any]) -> PipelinePlan:
    """The pipeline plan of any module with a list of layers, for ``Pipeline(module, plan=…)``.

    It is proven on a copy with random weights, cut between each two layers; the module itself is unchanged. The list is a
    ``ModuleList`` or a ``Sequential``, also the module itself, whose members run in order, each on results of the one before
    (other values may pass beside them, layers may return tuples).

    Args:
        module: a small instance on the CPU; its plan holds for larger instances of the same classes.
        inputs: arguments of one forward, by name or in order.

    Raises ``PlanError`` if the module is too large or not on the CPU, its forward fails, it is no chain of layers (with the
    reason), or stages give other numbers.
    """
    with torch.random.fork_rng(devices=[]):
        small = small_copy(module, inputs)
        return proven_pipeline_plan(small.model, small.inputs, small.name)


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
