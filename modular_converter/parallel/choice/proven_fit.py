"""Prove the fit of a plan: unequal shares are tried on a small instance, over a number of ranks that makes them so."""

from __future__ import annotations

import logging
from typing import Any

from modular_converter.parallel.choice.fit import Fit, fit, shares_members, without_part_around
from modular_converter.parallel.choice.skeleton import skeleton_of
from modular_converter.parallel.choice.small_instances import proven_on, small_settings, target_like, verified
from modular_converter.parallel.errors import ApplyError, PlanError
from modular_converter.parallel.plans.patterns import matches
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.text_checks import placed
from modular_converter.parallel.proof.judge import Verdict


logger = logging.getLogger(__name__)
# Few lengths of a small instance divide by these numbers; it has fewer key/value heads than the second number.
UNEVEN_RANKS, MORE_RANKS = 3, 6
_MOST_PARTS = 4


def fitted(model: Any, plan: Plan, origin: str, size: int, ranks: int, given: bool) -> tuple[Plan, str]:
    """The plan as it fits a model on ``size`` ranks, and its origin with a note on the fit.

    A part stays whole if it cannot be divided, or if its unequal shares give wrong numbers.

    Args:
        ranks: of the small instance that has proven the plan.
        given: whether the plan is the caller's; then a refusal by the small instance is only a warning.

    Raises ``ApplyError`` if nothing would be left to shard, the rest of the plan is wrong without the whole parts, or no
    trial can run the model.
    """
    skeleton = skeleton_of(model)
    found, whole = fit(skeleton, plan, size, model), dict[str, str]()
    if found.untried and not given:
        raise ApplyError(untried(type(model).__name__, found.untried))
    for _ in range(_MOST_PARTS):
        whole |= found.whole
        verdict = _verdict(model, found, ranks, bool(whole))
        if verdict is None or verdict.passed or given:
            break
        left = without_part_around(model, found.generic, verdict.layer)
        if left is None:
            raise ApplyError(_refused(size, whole, verdict))
        part, rest = left
        whole[part] = f"its unequal shares are refused: {placed(verdict.layer, verdict.reason)}"
        found = fit(skeleton, rest, size, model)
    else:
        raise ApplyError(_refused(size, whole, verdict))
    if verdict is not None and not verdict.passed:
        logger.warning("unequal shares are refused by a small instance: %s", placed(verdict.layer, verdict.reason))
    name = type(model).__name__
    for part, why in whole.items():
        logger.warning("%s: %s stays whole on each of %d ranks, %s: %s", name, part, size, _bytes(model, part), why)
    said = (
        f"; unequal shares, verified on {_ranks(found)} ranks"
        if found.uneven and verdict is not None and verdict.passed
        else ""
    )
    said += f"; whole on each rank: {', '.join(whole)}" if whole else ""
    return found.plan, origin + said


def untried(name: str, why: str) -> str:
    """The refusal of a plan without a trial of the model, in words."""
    return (
        f"{name} cannot be sharded: no trial shows that a rank computes the same, since the model runs neither without "
        f"data nor, with one layer of each kind, with random numbers ({why}); give a plan that you have checked as plan="
    )


def _ranks(found: Fit) -> int:
    return MORE_RANKS if shares_members(found.plan) else UNEVEN_RANKS


def _verdict(model: Any, found: Fit, ranks: int, left_whole: bool) -> Verdict | None:
    """The small instance's verdict on what is not proven yet; None if all is proven, or without a small instance."""
    if not found.uneven and not left_whole:
        return None
    try:
        target, overrides = target_like(model), small_settings(model)
        verdict = verified(target, overrides, ranks, found.generic) if left_whole else None
        if found.uneven and (verdict is None or verdict.passed):
            verdict = proven_on(target, overrides, _ranks(found), found.generic)
        return verdict
    except PlanError as error:
        logger.info("the fit is not proven: %s", str(error).splitlines()[0])
        return None


def _refused(size: int, whole: dict[str, str], verdict: Verdict | None) -> str:
    why = placed(verdict.layer, verdict.reason) if verdict is not None else ""
    parts = f" with {', '.join(whole)} whole" if whole else ""
    return f"num_gpus={size} does not fit this model{parts}: a small instance refuses the plan ({why})"


def _bytes(model: Any, part: str) -> str:
    """The size of a part's parameters, as text."""
    owners = matches(part, [path for path, _ in model.named_modules()])
    size = sum(p.numel() * p.element_size() for path in owners for p in model.get_submodule(path).parameters())
    return f"{size / 1e6:.1f} MB"
