"""The plan of a layout with ``ep``: each rank gets whole experts, and all other weights stay whole."""

from __future__ import annotations

import torch

from modular_converter.parallel.choice.select_plan import GivenPlan, given_plan
from modular_converter.parallel.choice.small_instances import (
    small_instance,
    small_settings,
    target_like,
    verified,
)
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.plans.plan import Plan, is_expert_plan
from modular_converter.parallel.plans.resolve import fitting
from modular_converter.parallel.plans.text_checks import placed
from modular_converter.parallel.solve.experts import derive_experts
from modular_converter.parallel.trace.record import record


def expert_plan(model: torch.nn.Module, given: GivenPlan | None, size: int) -> tuple[Plan, str]:
    """The plan that divides the experts of a model among ``size`` ranks, and its origin.

    Raises ``PlanError`` if no experts can be divided, the proof on a small instance fails, or the given plan divides no
    experts.
    """
    name = type(model).__name__
    if given is not None:
        plan = given_plan(given, name)
        if not is_expert_plan(plan):
            raise ApplyError(
                "the given plan divides no experts: give a plan of experts, or a layout with tp instead of ep"
            )
        return plan, "the given plan of experts"
    target, overrides = target_like(model), small_settings(model)
    small = small_instance(target, overrides)
    plan = derive_experts(record(small.model, small.inputs, target.name))
    if not plan.rules:
        reasons = "; ".join(f"{path}: {reason}" for path, reason in plan.whole) or "it has no stacked experts"
        raise ApplyError(f"the experts of {name} cannot be divided ({reasons}): take a layout with tp instead of ep")
    ranks = 4 if size % 4 == 0 else 2
    verdict = verified(target, overrides, ranks, plan)
    if not verdict.passed:
        raise ApplyError(
            f"{name} with divided experts gives other numbers ({placed(verdict.layer, verdict.reason)}): take a layout "
            "with tp instead of ep"
        )
    return fitting(plan, model), f"the derived plan of experts, verified on {ranks} ranks of a small instance"
