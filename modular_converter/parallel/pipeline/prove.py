"""Prove a pipeline plan: compare outputs and gradients of the model in stages with the whole model's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.pipeline.balance import balanced
from modular_converter.parallel.pipeline.flow import layers_entry
from modular_converter.parallel.pipeline.run_in_stages import run_in_stages
from modular_converter.parallel.plans.pipeline_plan import PipelinePlan
from modular_converter.parallel.proof.compare import reference
from modular_converter.parallel.proof.evidence import PADDING, WITH_GRADIENTS, Evidence
from modular_converter.parallel.proof.judge import Reference, Verdict, judge, refused
from modular_converter.parallel.proof.precision import Subject
from modular_converter.parallel.proof.subject import scope_of


def cuts_of(model: torch.nn.Module, plan: PipelinePlan, stages: int) -> tuple[int, ...]:
    """The cuts between layers for which the stages hold about the same bytes of parameters.

    Raises ``ApplyError`` as ``layers_entry`` does, and for fewer layers than stages.
    """
    layers = layers_entry(model, plan)
    at = plan.entries.index(layers)
    head = sum(_bytes(model.get_submodule(entry.module)) for entry in plan.entries[:at])
    tail = sum(_bytes(model.get_submodule(entry.module)) for entry in plan.entries[at + 1 :])
    costs = [_bytes(layer) for layer in model.get_submodule(layers.module).children()]
    try:
        return balanced(costs, stages, head, tail)
    except ValueError as error:
        raise ApplyError(f"{layers.module}: {error}") from error


def _bytes(module: torch.nn.Module) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in module.parameters())


def verify_pipeline(
    model: torch.nn.Module,
    plan: PipelinePlan,
    inputs: Mapping[str, Any],
    stages: int = 2,
    whole_batch: bool = False,
) -> Verdict:
    """Compare outputs and parameter gradients of the model in stages with the whole model's.

    The layers are cut into ``stages`` of about the same bytes, and then in two between each two layers.

    Args:
        whole_batch: whether stages get all inputs of the model, as in ``Pipeline``, or those that the plan names.

    Returns:
        The first failing verdict, which names the cut, or the worst passing one.
    """
    whole = reference(model, inputs, together=True)
    try:
        layers = layers_entry(model, plan)
        count = len(list(model.get_submodule(layers.module).children()))
        cuts = dict.fromkeys([cuts_of(model, plan, stages), *((k,) for k in range(1, count))])
    except ApplyError as error:
        return refused(stages, str(error).partition(":")[0], str(error))
    verdicts = []
    for cut in cuts:
        verdict = _verdict(model, plan, inputs, cut, whole, whole_batch)
        if not verdict.passed:
            return verdict
        verdicts.append(verdict)
    worst = max(verdicts, key=lambda v: (v.output_error, v.gradient_error))
    return replace(worst, evidence=_scope(model, inputs, whole, worst.evidence))


def _scope(model: torch.nn.Module, inputs: Mapping[str, Any], whole: Reference, found: Evidence) -> Evidence:
    """The evidence of one forward and its gradients."""
    padded = (PADDING,) if "attention_mask" in inputs else ()
    scope = scope_of(Subject(model, inputs, whole), padded, model)
    forms = (WITH_GRADIENTS,) if whole.gradients else ()
    return replace(scope, ranks=found.ranks, forms=forms).with_gap(*found.gaps, "other weights", "optional arguments")


def _verdict(
    model: torch.nn.Module,
    plan: PipelinePlan,
    inputs: Mapping[str, Any],
    cut: tuple[int, ...],
    whole: Reference,
    whole_batch: bool,
) -> Verdict:
    stages = len(cut) + 1
    where = "cut before layer " + " and ".join(map(str, cut))
    try:
        found = run_in_stages(model, plan, inputs, cut, bool(whole.gradients), whole_batch)
    except ApplyError as error:
        return refused(stages, str(error).partition(":")[0], f"{where}: {error}")
    except Exception as error:  # a missing tensor can cause any error in the model's own code
        return refused(stages, "a stage", f"{where}: {type(error).__name__}: {str(error)[:200]}")
    verdict = judge(found, whole, stages)
    if verdict.passed:
        return verdict
    blank = math.isinf(verdict.output_error) and len(found.outputs) == len(whole.outputs)
    reason = "the outputs use a value that the stages do not hand over" if blank else verdict.reason
    return replace(verdict, reason=f"{where}: {reason}")
