"""Derive a plan and prove it: threads as a first screen, then gloo processes, then the library's own loader."""

from __future__ import annotations

import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.text_checks import placed
from modular_converter.parallel.proof.head_variants import Form, other_forms, refusal
from modular_converter.parallel.proof.judge import Verdict
from modular_converter.parallel.proof.on_processes import RankPool, Task
from modular_converter.parallel.proof.on_threads import screen
from modular_converter.parallel.proof.precision import Subject, conditioned
from modular_converter.parallel.solve.budget import within
from modular_converter.parallel.solve.choose import choose
from modular_converter.parallel.solve.derive import Aim, plan_of
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.follow import follow
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
        screen: the verdict of the thread ranks.
        retreat: what the full plan failed of, when a more careful one was taken, or where the plan does not hold;
            empty for the full plan.
        forms: the model with another ratio of key/value heads, on which plans are screened too.
    """

    target: Target
    small: Small
    trace: Trace
    plan: Plan
    subject: Subject
    screen: Verdict
    overrides: tuple[tuple[str, Any], ...] = ()
    retreat: str = ""
    forms: tuple[Form, ...] = ()


def derive_model(
    target: Target, overrides: Mapping[str, Any] | None = None, ranks: int = 2, ratios: bool = True
) -> Derived:
    """Build, trace, derive, and screen. What fails the screen stays whole, layer by layer, then all pairs.

    A plan that fails with another ratio of key/value heads to heads gives way to one that holds with both.

    Args:
        ratios: whether other ratios matter; not for a plan that serves one model alone.

    Raises:
        PlanError: the model cannot be built or traced.
    """
    small = build(target, overrides)
    options = dict(overrides or {})
    first = _derived(target, small, None, ranks, options)
    forms = other_forms(target, small, options) if ratios else ()
    refused = refusal(forms, first.plan, ranks) if first.screen.passed else None
    first = replace(first, forms=forms)
    if refused is None:
        return first
    why = placed(refused.layer, refused.reason)
    for form in forms:
        second = _derived(target, form.small, form.subject, ranks, options)
        verdict = screen(first.subject, second.plan, ranks)
        if second.plan.rules and second.screen.passed and verdict.passed:
            return replace(first, plan=second.plan, screen=verdict, retreat=why)
    first = replace(first, retreat=f"holds for these heads alone: {why}")
    logger.warning("%s: the derived plan %s", target.name, first.retreat)
    return first


def _derived(
    target: Target, small: Small, subject: Subject | None, ranks: int, overrides: Mapping[str, Any]
) -> Derived:
    """The first plan of the ladder that holds on one small instance, or the full one."""
    trace = record(small.model, small.inputs, target.name)
    options = tuple(overrides.items())
    subject = subject or conditioned(small.model, small.inputs)
    tried: list[Derived] = []
    for plan in _ladder(trace, tried):
        verdict = screen(subject, plan, ranks)
        retreat = placed(tried[0].screen.layer, tried[0].screen.reason) if tried else ""
        tried.append(Derived(target, small, trace, plan, subject, verdict, options, retreat))
        if verdict.passed:
            return tried[-1]
    return tried[0]


def held_to(derived: Derived, collectives: int, ranks: int = 2) -> Derived:
    """The same with the plan that shards most within a number of collectives, screened anew."""
    plan = within(derived.trace, collectives)
    verdict = screen(derived.subject, plan, ranks)
    refused = refusal(derived.forms, plan, ranks) if verdict.passed else None
    return replace(derived, plan=plan, screen=refused or verdict)


def _ladder(trace: Trace, tried: Sequence[Derived]) -> Iterator[Plan]:
    """The full plan, the ones without the layers that failed, then gathers apart from pairs."""
    flow = follow(trace)
    yield plan_of(flow, Aim())
    whole: frozenset[int] = frozenset()
    for _ in range(_RETRIES):
        more = leaves_around(flow, tried[-1].screen.layer) - whole
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
    """Run a plan on the pool's processes against the whole model; on forms with other ratios of heads, in threads.

    The derived plan itself has been on those forms already.

    Args:
        library: through transformers' own loader instead of our application.
        committed: through that loader with the plan that the model's own classes carry, instead of this one.

    Returns:
        The first failing verdict of a rank, or the worst passing one.

    Raises:
        RankError: a rank died or hung.
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
        refused = refusal(derived.forms, plan, pool.size)
        failed = [] if refused is None else [refused]
    return failed[0] if failed else max(verdicts, key=lambda v: (v.output_error, v.gradient_error))
