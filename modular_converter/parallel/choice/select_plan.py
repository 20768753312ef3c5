"""Select the plan for a model: the given plan, else the plan in its classes if its proof holds, else the derived plan."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import torch

from modular_converter.findings import first_of
from modular_converter.parallel.choice.fit import fit, fitted, restricted_to_layers, scope_of_proof
from modular_converter.parallel.choice.kept_answers import kept_answer
from modular_converter.parallel.choice.same_numbers import restricted_to_numbers
from modular_converter.parallel.choice.skeleton import Guesses, on_meta, skeleton_of
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
from modular_converter.parallel.pipeline.flow import flow_of, layers_entry, tensors_of
from modular_converter.parallel.pipeline.prove import derive_pipeline
from modular_converter.parallel.pipeline.stage import copy_without_data
from modular_converter.parallel.plans.pipeline_plan import PipelinePlan
from modular_converter.parallel.plans.plan import Plan, is_expert_plan
from modular_converter.parallel.plans.resolve import Piece, fitting, resolve
from modular_converter.parallel.plans.text_checks import entries_for, matches, parse_plan, placed, read_plan
from modular_converter.parallel.proof.judge import Verdict
from modular_converter.parallel.proof.prove import Derived, Instance, derive_model, leaves_around
from modular_converter.parallel.shard.apply import apply
from modular_converter.parallel.shard.collectives import FakeGroup
from modular_converter.parallel.shard.shares import largest_share, without_units
from modular_converter.parallel.solve.derive import Aim, from_library, plan_of
from modular_converter.parallel.solve.experts import derive_experts
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.styles import STYLES
from modular_converter.parallel.styles.layout import Enters
from modular_converter.parallel.tiny.build import Target
from modular_converter.parallel.tiny.fields import wider_heads
from modular_converter.parallel.tiny.inputs import examples_of, is_staged
from modular_converter.parallel.trace.record import record


logger = logging.getLogger(__name__)
# A warning is logged if a rank keeps more than this multiple of its equal part.
_CLEARLY_MORE = 1.5
_NAMED = 3


@dataclass(frozen=True)
class Kept:
    """Bytes of all parameters and of one rank's shares; the names of whole parameters, the largest first."""

    all: int
    rank: int
    whole: tuple[str, ...]

    @property
    def share(self) -> float:
        """The fraction of the bytes on one rank, 0 to 1."""
        return self.rank / self.all if self.all else 1.0


def kept(model: torch.nn.Module, plan: Plan, ranks: int) -> Kept:
    """The bytes on the rank with the largest shares. Raises ``PlanError`` if a rule does not fit the model."""
    pieces = resolve(plan, model).pieces
    names: dict[int, list[str]] = {}
    parameters = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
        parameters[id(parameter)] = parameter
    total = rank = 0
    whole = []
    for key, parameter in parameters.items():
        size = parameter.numel() * parameter.element_size()
        piece = next((pieces[name] for name in names[key] if name in pieces), None)
        own = _own_part(parameter, piece, ranks)
        total, rank = total + size, rank + own * parameter.element_size()
        if own == parameter.numel():
            whole.append((size, names[key][0]))
    return Kept(total, rank, tuple(name for _, name in sorted(whole, key=lambda pair: -pair[0])))


def _own_part(parameter: torch.nn.Parameter, piece: Piece | None, ranks: int) -> int:
    """Entries on the rank with the largest share; all entries if the axis does not divide among the ranks."""
    try:
        return prod(largest_share(tuple(parameter.shape), piece, ranks))
    except ApplyError:
        return parameter.numel()


def log_kept(model: torch.nn.Module, plan: Plan, ranks: int) -> None:
    """Log the fraction of the weights that a rank keeps; warn if it is clearly more than the rank's equal part."""
    try:
        found = kept(model, plan, ranks)
    except PlanError:  # reported, with its place, when the plan is applied
        return
    name = type(model).__name__
    logger.info("%s: each of %d ranks keeps %.1f %% of the weights", name, ranks, 100 * found.share)
    if ranks > 1 and found.share > _CLEARLY_MORE / ranks:
        names = first_of([f"{weight} ({_reason(plan, weight)})" for weight in found.whole], _NAMED)
        share = 100 * found.share
        logger.warning("%s: each of %d ranks keeps %.1f %% of the weights; whole: %s", name, ranks, share, names)


def _log_hindrances(model: torch.nn.Module, found: Derived, ranks: int) -> None:
    """Log the code that other code would cure; warn of it where a rank keeps clearly more than its equal part for it."""
    try:
        more = ranks > 1 and kept(model, found.plan, ranks).share > _CLEARLY_MORE / ranks
    except PlanError:  # as in `log_kept`
        more = False
    for hindrance in found.hindrances:
        logger.log(logging.WARNING if more else logging.INFO, "%s: %s", type(model).__name__, hindrance)


def _reason(plan: Plan, weight: str) -> str:
    """The plan's reason why a weight stays whole."""
    owner = weight.rpartition(".")[0]
    return next((why for pattern, why in plan.whole if matches(pattern, [weight, owner])), "no rule of the plan")


def whole_between_layers(model: torch.nn.Module, found: Derived, size: int) -> Iterator[Plan]:
    """The plans of a module with example inputs under which layers take and return whole tensors, the best first.

    Raises ``PlanError`` if the module is no chain of layers.
    """
    inputs = examples_of(model) or {}
    stages = derive_pipeline(model, inputs)
    flow, layers = follow(found.trace), layers_entry(model, stages)
    around: frozenset[int] = frozenset()
    for entry in stages.entries:
        if entry != layers:
            around |= leaves_around(flow, entry.module)
    whole = _between(model, stages, inputs, None, size)
    for plan in (found.plan, plan_of(flow, Aim(without=around)), plan_of(flow, Aim(pairs=False))):
        if plan.rules and _between(model, stages, inputs, plan, size) == whole:
            yield plan


def _between(
    model: torch.nn.Module, stages: PipelinePlan, inputs: dict[str, Any], plan: Plan | None, size: int
) -> Any:
    """The shapes of the tensors that enter each layer, in the whole model or on one of several ranks; None if it fails."""
    made = copy_without_data(model).eval()
    try:
        if plan is not None:
            apply(made, fitting(plan, made), FakeGroup(size))
        with torch.no_grad(), Guesses():
            entering = flow_of(made, stages, on_meta(inputs), asks=True, skips=True).entering
    except Exception:  # of the module's own code, with shares that do not fit
        return None
    return {number: [tuple(one.shape) for one in tensors_of(values)] for number, values in entering.items()}


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


class SelectedPlan(NamedTuple):
    """A plan for a number of ranks, and its origin.

    Attributes:
        restricted: whether parts stay whole for the sake of this number of ranks, which fewer ranks may divide.
    """

    plan: Plan
    origin: str
    restricted: bool = False


def select_plan(model: torch.nn.Module, given: GivenPlan | None, size: int, experts: bool = False) -> SelectedPlan:
    """The plan for a model on ``size`` ranks, or the one that has been selected for it in an earlier process.

    A module with example inputs is its own small instance. A given plan is used as far as it fits, and is not kept; a
    refusal by a small instance is only a warning. The plan in the model's classes is used if its proof holds and it leaves
    no more bytes on a rank than the derived plan. The weights that a rank keeps are logged.

    Args:
        experts: divide only the experts, by a plan whose proof on a small instance holds.

    Raises ``PlanError`` with the reasons if no plan is proven, no experts can be divided, or the model has no configuration
    of transformers.
    """

    def selected() -> SelectedPlan:
        return (_selected_experts if experts else _selected)(model, given, size)

    def values() -> list[Any]:
        plan, *more = selected()
        return [str(plan), *more]

    if given is not None:
        return selected()
    text, *more = kept_answer(model, f"plan{' of experts' if experts else ''} for {size}", values)
    return SelectedPlan(Plan.parse(text), *more)


def _selected(model: torch.nn.Module, given: GivenPlan | None, size: int) -> SelectedPlan:
    ranks = 4 if size % 4 == 0 else 2
    if given is None and (instance := own_instance(model)) is not None:
        return SelectedPlan(*_from_examples(model, instance, size, ranks), restricted=True)
    if given is not None:
        plan, origin = _tried(model, given_plan(given, type(model).__name__), ranks)
    else:
        plan, origin, own = _own_or_derived(model, ranks)
        plan, origin = restricted_to_layers(model, plan, origin, ranks, own)
        plan = fitting(plan, model)  # the small instance may have kinds of layers that the model lacks
    general = without_units(plan)
    plan, origin = fitted(model, plan, origin, size, ranks, given is not None)
    plan, scope = restricted_to_numbers(model, plan, size, ranks, given is not None)
    origin += scope
    if given is None and size > 1 and not any(rule.layout.cuts for rule in plan.rules):
        why = origin.rpartition("left whole, since not proven: ")[2]
        raise ApplyError(
            f"{type(model).__name__}: nothing would be shared out, each of {size} devices would hold the whole model: {why}; "
            "use as many devices as there are key/value heads, or a divisor of this number, another attention "
            "(attn_implementation=), or give a plan that you have checked as plan="
        )
    _warn_of_branches(model)
    log_kept(model, plan, size)
    return SelectedPlan(plan, origin, without_units(plan) != general)


def _from_examples(model: torch.nn.Module, own: Instance, size: int, ranks: int) -> tuple[Plan, str]:
    """The plan of a module with example inputs, proven on a copy of it at its own sizes, and its origin."""
    name = type(model).__name__
    found = derive_model(own.target, {}, ranks, ratios=False, uses=True, known=own)
    if not found.verdict.passed or not found.plan.rules:
        why = placed(found.verdict.layer, found.verdict.reason) or "; ".join(map(str, found.hindrances[:3]))
        raise ApplyError(f"{name} has no plan: {why or 'nothing can be sharded'}; give one as plan=")
    _log_hindrances(model, found, size)
    reason, skeleton = "", skeleton_of(model)
    for plan in whole_between_layers(model, found, size) if is_staged(model) else (found.plan,):
        fitting_plan = fit(skeleton, plan, size)
        verdict = found.checked(fitting_plan.plan, size) if size > 1 else found.verdict
        if verdict.passed:
            break
        reason = f"the plan is refused ({placed(verdict.layer, verdict.reason)})"
    else:
        raise ApplyError(
            f"{size} shares do not fit {name}: {reason or 'layers would hand over shares to the next stage'}"
        )
    for part, why in fitting_plan.whole.items():
        logger.warning("%s: %s stays whole on each of %d ranks: %s", name, part, size, why)
    _warn_of_branches(model)
    log_kept(model, fitting_plan.plan, size)
    origin = f"the plan derived from example inputs, verified on {size} ranks of a copy of the model"
    return fitting_plan.plan, origin + _scope(verdict)


def _warn_of_branches(model: torch.nn.Module) -> None:
    """Warn of branches on data that no run has tried. Branches in the library's code depend on sizes, and are left out."""
    untried = () if is_of_the_library(model) else untried_branches_of(model)
    if untried:
        reasons = "; ".join(untried)
        logger.warning(
            "%s: no run of the proof has tried %s: compare answers with the answers of one device",
            type(model).__name__,
            reasons,
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
        origin = f"the plan in {name}'s classes, verified on {ranks} ranks of a small instance"
        origin += _scope(verdict)
        better = _better(model, target, overrides, ranks, own)
        if better is None:
            return committed, origin, True
        refused = f"the plan in its classes leaves {own.share:.1%} of the weights on each of {ranks} ranks"
    found = derived_plan(target, overrides, ranks)
    if found.verdict.passed and found.plan.rules:
        retreat = f"; a plan that shards more weights is refused ({found.retreat})" if found.retreat else ""
        origin = f"the derived plan, verified on {ranks} ranks of a small instance"
        _log_hindrances(model, found, ranks)
        return found.plan, f"{origin}{_scope(found.verdict)}{retreat}; {refused}", False
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
    evidence = "; ".join(verdict.evidence.lines(tried_later=True))
    return f" ({evidence})" if evidence else ""


def _tried(model: torch.nn.Module, plan: Plan, ranks: int) -> tuple[Plan, str]:
    """A given plan, and its origin with the verdict of a small instance."""
    try:
        target, overrides = target_like(model), small_settings(model)
        wider = wider_heads(small_instance(target, overrides).model.config, overrides)
        verdict = verified(target, overrides | (wider if builds(target, overrides | wider) else {}), ranks, plan)
    except PlanError as error:
        return plan, f"the given plan, not verified: {str(error).splitlines()[0].partition('; ')[0]}"
    if verdict.passed:
        origin = f"the given plan, verified on {ranks} ranks of a small instance{_scope(verdict)}"
        return plan, origin + scope_of_proof(model, plan, ranks)
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


def _selected_experts(model: torch.nn.Module, given: GivenPlan | None, size: int) -> SelectedPlan:
    name = type(model).__name__
    if given is not None:
        plan = given_plan(given, name)
        if not is_expert_plan(plan):
            raise ApplyError(
                "the given plan divides no experts: give a plan of experts, or a layout with tp instead of ep"
            )
        return SelectedPlan(plan, "the given plan of experts")
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
    return SelectedPlan(
        fitting(plan, model), f"the derived plan of experts, verified on {ranks} ranks of a small instance"
    )
