"""Derive a plan and prove it: first on threads, then on gloo processes, then through the library's own loader."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from modular_converter.parallel.errors import TraceError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.text_checks import placed
from modular_converter.parallel.proof.head_variants import HeadVariant, head_variants, refusal
from modular_converter.parallel.proof.in_use import Instance
from modular_converter.parallel.proof.judge import Verdict
from modular_converter.parallel.proof.on_processes import RankPool, Task
from modular_converter.parallel.proof.on_threads import check_on_threads
from modular_converter.parallel.proof.precision import Subject
from modular_converter.parallel.solve.budget import plan_within
from modular_converter.parallel.solve.choose import choose
from modular_converter.parallel.solve.derive import Aim, plan_of
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.solve.hindrances import Hindrance, hindrances
from modular_converter.parallel.tiny.build import Small, Target, build
from modular_converter.parallel.trace.graph import Trace
from modular_converter.parallel.trace.record import record


logger = logging.getLogger(__name__)
_RETRIES = 3


@dataclass(frozen=True)
class Derived:
    """A small model, its trace and the plan.

    Attributes:
        subject: the small model as it is compared; another object where float64 is needed.
        verdict: of the ranks that are threads.
        retreat: why the full plan failed, when a plan that shards less was taken, or where the plan does not hold;
            empty for the full plan.
        variants: the model with other ratios of key/value heads, and in other uses, on which plans are checked too.
        known: the instance in all uses, where plans are checked in them.
    """

    target: Target
    small: Small
    trace: Trace
    plan: Plan
    subject: Subject
    verdict: Verdict
    overrides: tuple[tuple[str, Any], ...] = ()
    retreat: str = ""
    variants: tuple[HeadVariant, ...] = ()
    known: Instance | None = None

    @property
    def hindrances(self) -> list[Hindrance]:
        """The reasons for gathered or whole weights of layers that other code would remove."""
        return hindrances(self.trace, self.plan)

    def with_uses(self, verdict: Verdict) -> Verdict:
        """The verdict on a plan that held on all variants, with the uses among them in its scope."""
        return verdict if self.known is None else self.known.with_uses(verdict)

    def checked(self, plan: Plan, ranks: int) -> Verdict:
        """The verdict on a plan, of ranks that are threads, on all variants too."""
        verdict = check_on_threads(self.subject, plan, ranks)
        refused = refusal(self.variants, plan, ranks) if verdict.passed else None
        return refused or self.with_uses(verdict)


def derive_model(
    target: Target,
    overrides: Mapping[str, Any] | None = None,
    ranks: int = 2,
    ratios: bool = True,
    uses: bool = False,
    known: Instance | None = None,
) -> Derived:
    """Build, trace, derive, and check on threads. A layer that fails stays whole; if this is not enough, more layers do.

    A plan that fails with another ratio of key/value heads to heads, or in another use, gives way to one that holds.

    Args:
        ratios: whether the plan must hold with other ratios; False for a plan that serves one model alone.
        uses: whether it must hold in other uses than one plain forward: lengths, padding, state, training.
        known: the small instance of these settings, if there is one already.

    Raises ``PlanError`` if the model cannot be built or traced.
    """
    options = dict(overrides or {})
    known = known or Instance(target, build(target, overrides), options)
    small = known.small
    first = derived_from(target, small, known.subject, ranks, options)
    variants = head_variants(target, small, options) if ratios else ()
    variants += known.in_use if uses else ()
    refused = refusal(variants, first.plan, ranks) if first.verdict.passed else first.verdict
    first = replace(first, variants=variants, known=known if uses else None)
    if refused is None:
        return replace(first, verdict=first.with_uses(first.verdict))
    if not (uses or first.verdict.passed):
        return first
    why = placed(refused.layer, refused.reason)
    failed = [refused]
    for plan in chain(_plans_of(variants, first, ranks), _without_layers(first.trace, failed)):
        verdict = first.checked(plan, ranks)
        if verdict.passed and plan.rules:
            return replace(first, plan=plan, verdict=verdict, retreat=why)
        failed += [] if verdict.passed else [verdict]
    if uses and first.verdict.passed:
        refused = refusal(known.in_use, first.plan, ranks)
    if uses and refused is not None:
        return replace(first, verdict=refused, retreat=why)
    first = replace(first, verdict=first.with_uses(first.verdict), retreat=f"holds for these heads alone: {why}")
    logger.warning("%s: the derived plan %s", target.name, first.retreat)
    return first


def _plans_of(variants: Sequence[HeadVariant], first: Derived, ranks: int) -> Iterator[Plan]:
    """The plan of each variant that refuses the first one, then the rules that all of these plans have."""
    shared = first.plan
    for variant in variants:
        if refusal((variant,), first.plan, ranks) is None:
            continue
        try:
            second = derived_from(first.target, variant.small, variant.subject, ranks, dict(first.overrides))
        except (TraceError, LookupError) as error:  # operations of this use that the solver cannot follow
            logger.info("%s: no plan can be derived with %s: %s", first.target.name, variant.ratio, error)
            continue
        if second.verdict.passed:
            yield second.plan
            rules = tuple(rule for rule in shared.rules if rule in second.plan.rules)
            kept = tuple(name for name in shared.attributes if name in second.plan.attributes)
            shared = replace(shared, rules=rules, attributes=kept)
    yield shared


def _without_layers(trace: Trace, failed: Sequence[Verdict]) -> Iterator[Plan]:
    """The full plan without the layers that failed, one after the other; the last of ``failed`` names the next one."""
    flow, whole = follow(trace), frozenset[int]()
    for _ in range(_RETRIES):
        more = leaves_around(flow, failed[-1].layer) - whole
        if not more:
            return
        whole |= more
        yield plan_of(flow, Aim(without=whole))


def derived_from(target: Target, small: Small, subject: Subject, ranks: int, overrides: Mapping[str, Any]) -> Derived:
    """The first of the attempts that holds on one small instance, or the full plan."""
    trace = record(small.model, small.inputs, target.name)
    options = tuple(overrides.items())
    tried: list[Derived] = []
    for plan in _attempts(trace, tried):
        verdict = check_on_threads(subject, plan, ranks)
        retreat = placed(tried[0].verdict.layer, tried[0].verdict.reason) if tried else ""
        tried.append(Derived(target, small, trace, plan, subject, verdict, options, retreat))
        if verdict.passed:
            return tried[-1]
    return tried[0]


def held_to(derived: Derived, collectives: int) -> Derived:
    """The same model with the plan that shards most within a number of collectives, checked anew."""
    plan = plan_within(derived.trace, collectives)
    return replace(derived, plan=plan, verdict=derived.checked(plan, derived.verdict.ranks))


def _attempts(trace: Trace, tried: Sequence[Derived]) -> Iterator[Plan]:
    """The full plan, the plans without the layers that failed, then plans with gathers instead of pairs."""
    flow = follow(trace)
    yield plan_of(flow, Aim())
    whole: frozenset[int] = frozenset()
    for _ in range(_RETRIES):
        more = leaves_around(flow, tried[-1].verdict.layer) - whole
        if not more:
            break
        whole |= more
        yield plan_of(flow, Aim(without=whole))
    if whole:
        yield plan_of(flow, Aim(without=whole, gather=False))
    yield plan_of(flow, Aim(gather=False))
    yield plan_of(flow, Aim(pairs=False))


def leaves_around(flow: Flow, layer: str) -> frozenset[int]:
    """The chosen axes of the parameters of a module, or of the nearest module around it that has any."""
    accepted = choose(flow).accepted
    words = layer.split(".")
    for count in range(len(words), 0, -1):
        start = ".".join(words[:count]) + "."
        inside = {number for number, p in enumerate(flow.trace.parameters) if p.name.startswith(start)}
        hit = [c for c in accepted if any(place.parameter in inside for place in c.places)]
        if hit:
            return frozenset(leaf for candidate in hit for leaf in candidate.leaves)
    return frozenset()


def prove(derived: Derived, plan: Plan, pool: RankPool, library: bool = False, committed: bool = False) -> Verdict:
    """Run a plan on the pool's processes against the whole model, and on threads with other ratios of heads and in other uses.

    The derived plan itself has been checked in these already.

    Args:
        library: through transformers' own loader instead of our application.
        committed: through that loader with the plan that the model's own classes carry, instead of this one.

    Returns:
        The first failing verdict of a rank, or the worst passing one.

    Raises ``RankError`` if a rank died or hung.
    """
    route = "committed" if committed else "library" if library else "ours"
    folder = ""
    if route != "ours":
        folder = tempfile.mkdtemp(prefix="modular-plan-")
        model: Any = derived.small.model
        model.save_pretrained(folder)
    try:
        task = Task(derived.target, derived.small.strategy, derived.overrides, str(plan), route, folder)
        verdicts: list[Verdict] = pool.run(task)
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
    failed = [verdict for verdict in verdicts if not verdict.passed]
    if not failed and route == "ours" and plan is not derived.plan:
        refused = refusal(derived.variants, plan, pool.size)
        failed = [] if refused is None else [refused]
    if failed:
        return failed[0]
    worst = max(verdicts, key=lambda v: (v.output_error, v.gradient_error))
    return derived.with_uses(worst) if route == "ours" else worst
