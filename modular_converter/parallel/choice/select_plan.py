"""Select the plan for a model: the given plan, else the plan in its classes if its proof holds, else the derived plan."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import Any

import torch

from modular_converter.parallel.choice.fit import fit
from modular_converter.parallel.choice.kept import Kept, kept, log_kept
from modular_converter.parallel.choice.proven_fit import fitted
from modular_converter.parallel.choice.proven_layers import restricted_to_layers, said_of_given
from modular_converter.parallel.choice.same_numbers import restricted_to_numbers
from modular_converter.parallel.choice.shares_in_stages import whole_between_layers
from modular_converter.parallel.choice.skeleton import skeleton_of
from modular_converter.parallel.choice.small_instances import (
    builds,
    derived_plan,
    is_of_the_library,
    own_instance,
    small_instance,
    small_settings,
    target_like,
    untried_branches_of,
    verified,
)
from modular_converter.parallel.errors import ApplyError, PlanError, PlanFormatError
from modular_converter.parallel.plans.files import parse_plan, read_plan
from modular_converter.parallel.plans.patterns import entries_for
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import fitting
from modular_converter.parallel.plans.text_checks import placed
from modular_converter.parallel.proof.in_use import Instance
from modular_converter.parallel.proof.judge import Verdict
from modular_converter.parallel.proof.prove import Derived, derive_model
from modular_converter.parallel.solve.read_library import from_library
from modular_converter.parallel.styles import STYLES
from modular_converter.parallel.styles.layout import Enters
from modular_converter.parallel.tiny.build import Target
from modular_converter.parallel.tiny.fields import wider_heads
from modular_converter.parallel.tiny.inputs import is_staged
from modular_converter.parallel.trace.record import record


logger = logging.getLogger(__name__)
GivenPlan = Plan | Mapping[str, str] | str | os.PathLike[str]


def given_plan(given: GivenPlan, name: str) -> Plan:
    """A plan from a ``Plan``, transformers' ``{layer pattern: style}``, the path of a file, or its text (or JSON).

    Raises ``PlanFormatError`` for any other value, and for a file that cannot be read.
    """
    if isinstance(given, Plan):
        return given
    if isinstance(given, Mapping):
        return from_library(name, dict(given))
    if not isinstance(given, (str, os.PathLike)):
        raise PlanFormatError(f"a plan is a Plan, a table of styles, a file or its text, not {given!r}")
    text = os.fspath(given)
    is_text = "\n" in text or text.lstrip().startswith("{")
    return parse_plan(text, Plan) if is_text else read_plan(text, Plan)


def select_plan(model: torch.nn.Module, given: GivenPlan | None, size: int) -> tuple[Plan, str]:
    """The plan for a model on ``size`` ranks, and its origin.

    A module with example inputs is its own small instance. A given plan is used as far as it fits; a refusal by a small instance is only a warning. The plan in the model's
    classes is used if its proof holds and it leaves no more bytes on a rank than the derived plan. The weights that a
    rank keeps are logged.

    Raises ``PlanError`` with the reasons if no plan is proven, or the model has no configuration of transformers.
    """
    ranks = 4 if size % 4 == 0 else 2
    if given is None and (instance := own_instance(model)) is not None:
        return _from_examples(model, instance, size, ranks)
    if given is not None:
        plan, origin = _tried(model, given_plan(given, type(model).__name__), ranks)
    else:
        plan, origin, own = _own_or_derived(model, ranks)
        plan, origin = restricted_to_layers(model, plan, origin, ranks, own)
        plan = fitting(plan, model)  # the small instance may have kinds of layers that the model lacks
    plan, origin = fitted(model, plan, origin, size, ranks, given is not None)
    plan, said = restricted_to_numbers(model, plan, size, ranks, given is not None)
    origin += said
    if given is None and size > 1 and not any(rule.layout.cuts for rule in plan.rules):
        why = origin.rpartition("left whole, since not proven: ")[2]
        raise ApplyError(
            f"{type(model).__name__}: nothing would be shared out, each of {size} devices would hold the whole model: {why}; "
            "use as many devices as there are key/value heads, or a divisor of this number, another attention "
            "(attn_implementation=), or give a plan that you have checked as plan="
        )
    _warn_of_branches(model)
    log_kept(model, plan, size)
    return plan, origin


def _from_examples(model: torch.nn.Module, own: Instance, size: int, ranks: int) -> tuple[Plan, str]:
    """The plan of a module with example inputs, proven on a copy of it at its own sizes, and its origin."""
    name = type(model).__name__
    found = derive_model(own.target, {}, ranks, ratios=False, uses=True, known=own)
    if not found.verdict.passed or not found.plan.rules:
        why = placed(found.verdict.layer, found.verdict.reason) or "; ".join(map(str, found.hindrances[:3]))
        raise ApplyError(f"{name} has no plan: {why or 'nothing can be sharded'}; give one as plan=")
    for hindrance in found.hindrances:
        logger.info("%s: %s", name, hindrance)
    said, skeleton = "", skeleton_of(model)
    for plan in whole_between_layers(model, found, size) if is_staged(model) else (found.plan,):
        fitting_plan = fit(skeleton, plan, size)
        verdict = found.checked(fitting_plan.plan, size) if size > 1 else found.verdict
        if verdict.passed:
            break
        said = f"the plan is refused ({placed(verdict.layer, verdict.reason)})"
    else:
        raise ApplyError(
            f"{size} shares do not fit {name}: {said or 'layers would hand over shares to the next stage'}"
        )
    for part, why in fitting_plan.whole.items():
        logger.warning("%s: %s stays whole on each of %d ranks: %s", name, part, size, why)
    _warn_of_branches(model)
    log_kept(model, fitting_plan.plan, size)
    said = f"the plan derived from example inputs, verified on {size} ranks of a copy of the model"
    return fitting_plan.plan, said + _scope(verdict)


def _warn_of_branches(model: torch.nn.Module) -> None:
    """Warn of branches on data that no run has tried. Branches in the library's code depend on sizes, and are left out."""
    untried = () if is_of_the_library(model) else untried_branches_of(model)
    if untried:
        said = "; ".join(untried)
        logger.warning(
            "%s: no run of the proof has tried %s: compare answers with the answers of one device",
            type(model).__name__,
            said,
        )


def _own_or_derived(model: torch.nn.Module, ranks: int) -> tuple[Plan, str, bool]:
    """The plan, its origin, and whether it is the plan in the model's classes."""
    name, target, overrides = type(model).__name__, target_like(model), small_settings(model)
    committed = committed_plan(model, target, overrides)
    refused, own = committed if isinstance(committed, str) else "", None
    if isinstance(committed, Plan):
        verdict = verified(target, overrides, ranks, committed)
        refused = f"the plan in its classes is refused ({placed(verdict.layer, verdict.reason)})"
        own = kept(model, committed, ranks) if verdict.passed else None
    if isinstance(committed, Plan) and own is not None:
        said = f"the plan in {name}'s classes, verified on {ranks} ranks of a small instance"
        said += _scope(verdict)
        better = _better(model, target, overrides, ranks, own)
        if better is None:
            return committed, said, True
        refused = f"the plan in its classes leaves {own.share:.1%} of the weights on each of {ranks} ranks"
    found = derived_plan(target, overrides, ranks)
    if found.verdict.passed and found.plan.rules:
        retreat = f"; a plan that shards more weights is refused ({found.retreat})" if found.retreat else ""
        said = f"the derived plan, verified on {ranks} ranks of a small instance"
        for hindrance in found.hindrances:
            logger.info("%s: %s", name, hindrance)
        return found.plan, f"{said}{_scope(found.verdict)}{retreat}; {refused}", False
    reason = (
        placed(found.verdict.layer, found.verdict.reason) if not found.verdict.passed else "nothing can be sharded"
    )
    raise ApplyError(
        f"{name} has no plan: {refused}, and the derived plan does not hold ({reason}); give one as plan="
    )


def _better(
    model: torch.nn.Module, target: Target, overrides: dict[str, Any], ranks: int, own: Kept
) -> Derived | None:
    """The derived plan, if its proof holds and it leaves fewer bytes on a rank than the plan in the model's classes."""
    try:
        found = derived_plan(target, overrides, ranks)
        passed = found.verdict.passed and bool(found.plan.rules)
        return found if passed and kept(model, found.plan, ranks).rank < own.rank else None
    except PlanError as error:
        logger.info("no derived plan to compare with the plan in the model's classes: %s", str(error).splitlines()[0])
        return None


def _scope(verdict: Verdict) -> str:
    """The scope of a proof, in parentheses."""
    said = "; ".join(verdict.evidence.lines(tried_later=True))
    return f" ({said})" if said else ""


def _tried(model: torch.nn.Module, plan: Plan, ranks: int) -> tuple[Plan, str]:
    """A given plan, and its origin with the verdict of a small instance."""
    try:
        target, overrides = target_like(model), small_settings(model)
        wider = wider_heads(small_instance(target, overrides).model.config, overrides)
        verdict = verified(target, overrides | (wider if builds(target, overrides | wider) else {}), ranks, plan)
    except PlanError as error:
        return plan, f"the given plan, not verified: {str(error).splitlines()[0].partition('; ')[0]}"
    if verdict.passed:
        said = f"the given plan, verified on {ranks} ranks of a small instance{_scope(verdict)}"
        return plan, said + said_of_given(model, plan, ranks)
    logger.warning(
        "the given plan is refused by a small instance of the model: %s", placed(verdict.layer, verdict.reason)
    )
    return plan, f"the given plan, which a small instance refuses ({placed(verdict.layer, verdict.reason)})"


def committed_plan(model: Any, target: Target, overrides: dict[str, Any]) -> Plan | str:
    """The plan in the model's classes, without rules for layers that it lacks; or the reason why there is none."""
    rules = getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None) or {}
    kept = entries_for(rules, model)
    if not kept:
        return "its classes have no plan"
    try:
        trace = None
        if any(style in STYLES and STYLES[style].layout.enters is Enters.TAIL for style in kept.values()):
            small = small_instance(target, overrides)
            trace = record(small.model, small.inputs, target.name)
        return from_library(target.name, kept, trace)
    except PlanError as error:
        return f"the plan in its classes cannot be used here ({error})"
