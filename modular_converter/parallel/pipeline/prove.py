"""Prove a pipeline plan: the model runs stage by stage, and gives the numbers of the whole model; also for a plain module.

Only the tensors that the plan names are handed over. Inputs of the model that a stage does not name are zeros there, and
parts of other stages return NaN. So a tensor that the plan lacks shows in the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.pipeline.chain import balanced, spans
from modular_converter.parallel.pipeline.derive import derive_pipelines
from modular_converter.parallel.pipeline.flow import flow_of, layer_paths, layers_entry
from modular_converter.parallel.pipeline.stage import StageModule
from modular_converter.parallel.plans.pipeline_plan import PipelinePlan
from modular_converter.parallel.plans.resolve import names_of_tied
from modular_converter.parallel.proof.compare import reference, run_model
from modular_converter.parallel.proof.judge import (
    PADDING,
    WITH_GRADIENTS,
    Evidence,
    Reference,
    Verdict,
    judge,
    refused,
)
from modular_converter.parallel.proof.precision import Subject
from modular_converter.parallel.proof.prove import small_copy
from modular_converter.parallel.proof.subject import scope_of, with_mask
from modular_converter.parallel.tiny.build import copy_of, seed_cpu
from modular_converter.parallel.trace.record import record
from modular_converter.parallel.trace.unchanged import shared_state, unchanged


class _Fed(torch.nn.Module):
    """A stage that has received its tensors."""

    def __init__(self, stage: StageModule, received: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.stage, self.received = stage, received

    def forward(self, **inputs: Any) -> Any:
        return self.stage(*self.received, **inputs)


_PREFIX = "stage.model."


def run_in_stages(
    model: torch.nn.Module,
    plan: PipelinePlan,
    inputs: Mapping[str, Any],
    cuts: tuple[int, ...],
    gradients: bool = True,
    whole_batch: bool = False,
) -> Reference:
    """Outputs of the last stage, and gradients by parameter name summed over the stages.

    Args:
        model: whole, on the CPU; it is copied, not changed.
        cuts: the first layer of each stage after the first.
        whole_batch: whether stages get all inputs of the model, or only those that the plan names for them.

    Raises ``ApplyError`` if the plan does not fit the model, or names a value that no layer takes.
    """
    with unchanged(model), torch.no_grad():
        flow = flow_of(model, plan, inputs, asks=True, skips=whole_batch)
    stages = [StageModule(copy_of(model), plan, span) for span in spans(cuts, len(layer_paths(model, plan)))]
    before = shared_state(model)  # a stage does not see another stage's state of classes and files
    received: tuple[torch.Tensor, ...] = ()
    borders = []
    for stage in stages:
        stage.prepare(flow)
        if not stage.is_last:
            seed_cpu(11)
            sent = stage(*received, **_named(stage, inputs, whole_batch))
            before.give_back()
            received = tuple(tensor.detach().requires_grad_(tensor.requires_grad) for tensor in sent)
            borders.append((sent, received))
    found = run_model(_Fed(stages[-1], received), _named(stages[-1], inputs, whole_batch), gradients, together=True)
    before.give_back()
    names = names_of_tied(model)
    total = {
        names[name.removeprefix(_PREFIX)]: gradient for last in found.gradients for name, gradient in last.items()
    }
    if not gradients:
        return Reference(found.outputs, [])
    for stage, (sent, received) in zip(reversed(stages[:-1]), reversed(borders)):
        _backward(sent, received)
        for alias, parameter in stage.model.named_parameters():
            if parameter.grad is not None:
                name = names[alias]
                total[name] = total[name] + parameter.grad if name in total else parameter.grad
    return Reference(found.outputs, [total])


def _named(stage: StageModule, inputs: Mapping[str, Any], whole_batch: bool) -> dict[str, Any]:
    """The inputs, with zeros in place of the tensors that no part of the stage names."""
    needs = inputs if whole_batch else stage.needs
    return {
        name: torch.zeros_like(value) if isinstance(value, torch.Tensor) and name not in needs else value
        for name, value in inputs.items()
    }


def _backward(sent: Sequence[torch.Tensor], received: Sequence[torch.Tensor]) -> None:
    """Continue the backward from the sent tensors, with the gradients of the received tensors."""
    wanted = [(one, got.grad) for one, got in zip(sent, received) if one.requires_grad and got.grad is not None]
    if wanted:
        torch.autograd.backward([one for one, _ in wanted], [gradient for _, gradient in wanted])


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
    model: torch.nn.Module, plan: PipelinePlan, inputs: Mapping[str, Any], stages: int = 2, whole_batch: bool = False
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
    with unchanged(model), torch.no_grad():
        writes = bool(flow_of(model, plans[0], inputs, asks=True, skips=True).rewritten)
    cure = (
        "; its layers write to what they get, as x.add_(…) does: let them make new tensors, as x + … does"
        if writes
        else ""
    )
    raise ApplyError(f"{name} in stages gives other numbers than whole: {reasons[0]}{cure}")
