"""The plan of a layout with ``ep``: stacked experts are shared out whole, and everything else stays whole."""

from __future__ import annotations

import torch

from modular_converter.parallel.engine.choice.select_plan import GivenPlan, given_plan
from modular_converter.parallel.engine.choice.small_instances import (
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
    """The plan that shares out the experts of a model over ``size`` ranks, and where it is from.

    Raises ``PlanError`` if no experts can be shared out, numbers differ on a small instance, or the given plan is
    another kind.
    """
    name = type(model).__name__
    if given is not None:
        plan = given_plan(given, name)
        if not is_expert_plan(plan):
            raise ApplyError("the given plan shares out no experts: give one that does, or a layout with tp for ep")
        return plan, "the given plan of experts"
    target, overrides = target_like(model), small_settings(model)
    small = small_instance(target, overrides)
    plan = derive_experts(record(small.model, small.inputs, target.name))
    if not plan.rules:
        reasons = "; ".join(f"{path}: {reason}" for path, reason in plan.whole) or "it has no stacked experts"
        raise ApplyError(f"{name} cannot share out experts ({reasons}): take a layout with tp for ep")
    ranks = 4 if size % 4 == 0 else 2
    verdict = verified(target, overrides, ranks, plan)
    if not verdict.passed:
        raise ApplyError(
            f"{name} with its experts shared out gives other numbers ({placed(verdict.layer, verdict.reason)}): take a "
            "layout with tp for ep"
        )
    return fitting(plan, model), f"the derived plan of experts, verified on {ranks} ranks of a small instance"
