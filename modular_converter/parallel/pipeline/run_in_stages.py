"""Run a model stage by stage in this process, and hand over only the tensors that a pipeline plan names.

Inputs of the model that a stage does not name are zeros there, and parts of other stages return NaN. So a tensor that the
plan lacks shows in the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from modular_converter.parallel.pipeline.balance import spans
from modular_converter.parallel.pipeline.flow import flow_of, layer_paths
from modular_converter.parallel.pipeline.stage import StageModule
from modular_converter.parallel.plans.pipeline_plan import PipelinePlan
from modular_converter.parallel.plans.resolve import first_names
from modular_converter.parallel.proof.compare import run_model
from modular_converter.parallel.proof.judge import Reference
from modular_converter.parallel.tiny.copies import copy_of, seed_cpu
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
    names = first_names(model)
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
