"""Derive a plan and prove it: first on threads, then on gloo processes, then through the library's own loader.

For a model type on its small instance, for a plain ``nn.Module`` with the inputs that are given; in further uses of the
model, and on variants of its heads.
"""

from __future__ import annotations

import functools
import logging
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch

from modular_converter.parallel.errors import BuildError, PlanError, TraceError, one_line
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.text_checks import placed
from modular_converter.parallel.proof.judge import Verdict
from modular_converter.parallel.proof.on_ranks import RankPool, Task, check_on_threads
from modular_converter.parallel.proof.precision import Subject, finer_outputs, in_fitting_precision, outputs_alone
from modular_converter.parallel.proof.subject import subject_of
from modular_converter.parallel.solve.choose import Hindrance, choose, hindrances
from modular_converter.parallel.solve.cost import plan_within
from modular_converter.parallel.solve.derive import Aim, plan_of
from modular_converter.parallel.solve.flow import Flow
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.tiny.arguments import inputs_by_name, optional_arguments
from modular_converter.parallel.tiny.build import MOST_PARAMETERS, SEED, Small, Target, build, copy_of, randomise
from modular_converter.parallel.tiny.fields import other_ratios, wider_heads
from modular_converter.parallel.tiny.uses import arguments_of_use, untried_branches, uses_of
from modular_converter.parallel.torch_switches import one_thread
from modular_converter.parallel.trace.graph import Trace
from modular_converter.parallel.trace.record import record
from modular_converter.parallel.trace.unchanged import unchanged


logger = logging.getLogger(__name__)
_RETRIES = 3


@dataclass(frozen=True)
class Derived:
    """A small model, its trace and the plan.

    Attributes:
        subject: the small model in the precision of the comparison.
        verdict: of threads as ranks.
        retreat: why the full plan failed, if this plan shards less, or where this plan fails; else empty.
        variants: the model with other ratios of key/value heads, and in other uses, for further checks of plans.
        known: the instance in all uses, if plans are checked in them.
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
        """The reasons for gathered or whole weights of layers that other code would cure."""
        return hindrances(self.trace, self.plan)

    def with_uses(self, verdict: Verdict) -> Verdict:
        """The verdict on a plan that holds for all variants, with the uses in its evidence."""
        return verdict if self.known is None else self.known.with_uses(verdict)

    def checked(self, plan: Plan, ranks: int) -> Verdict:
        """The verdict on a plan and all variants, with threads as ranks."""
        verdict = check_on_threads(self.subject, plan, ranks)
        refused = refusal(self.variants, plan, ranks) if verdict.passed else None
        return refused or self.with_uses(verdict)


@one_thread()
def derive_model(
    target: Target,
    overrides: Mapping[str, Any] | None = None,
    ranks: int = 2,
    ratios: bool = True,
    uses: bool = False,
    known: Instance | None = None,
) -> Derived:
    """Build, trace, derive, and check on threads. A layer that fails stays whole, and if necessary more layers.

    If the plan fails with another ratio of key/value heads to heads, or in another use, another plan is tried.

    Args:
        ratios: whether the plan must hold with other ratios; False for a plan of one model.
        uses: whether it must hold in other uses than one plain forward: lengths, padding, state, training.
        known: the small instance with these settings, if it was built already.

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
    flow = follow(first.trace)
    smaller = (plan_of(flow, Aim(without=whole)) for whole in _without_layers(flow, failed))
    for plan in chain(_plans_of(variants, first, ranks), smaller):
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
    """The plan of each variant that refuses the first plan, then the rules that all these plans have in common."""
    shared = first.plan
    for variant in variants:
        if refusal((variant,), first.plan, ranks) is None:
            continue
        try:
            second = derived_from(first.target, variant.small, variant.subject, ranks, dict(first.overrides))
        except (TraceError, LookupError) as error:  # the solver cannot follow operations of this use
            logger.info("%s: no plan can be derived with %s: %s", first.target.name, variant.ratio, error)
            continue
        if second.verdict.passed:
            yield second.plan
            rules = tuple(rule for rule in shared.rules if rule in second.plan.rules)
            kept = tuple(name for name in shared.attributes if name in second.plan.attributes)
            shared = replace(shared, rules=rules, attributes=kept)
    yield shared


def _without_layers(flow: Flow, failed: Sequence[Verdict]) -> Iterator[frozenset[int]]:
    """The axes to leave whole: those of the layer in the last of ``failed``, then also those of the next such layer."""
    whole: frozenset[int] = frozenset()
    for _ in range(_RETRIES):
        more = leaves_around(flow, failed[-1].layer) - whole
        if not more:
            return
        whole |= more
        yield whole


def derived_from(target: Target, small: Small, subject: Subject, ranks: int, overrides: Mapping[str, Any]) -> Derived:
    """The first attempt that holds for a small instance, or the full plan."""
    trace = record(small.model, small.inputs, target.name)
    options = tuple(overrides.items())
    tried: list[Derived] = []
    failed: list[Verdict] = []
    for plan in _attempts(trace, failed):
        verdict = check_on_threads(subject, plan, ranks)
        retreat = placed(failed[0].layer, failed[0].reason) if failed else ""
        tried.append(Derived(target, small, trace, plan, subject, verdict, options, retreat))
        if verdict.passed:
            return tried[-1]
        failed.append(verdict)
    return tried[0]


def restricted_to(derived: Derived, collectives: int) -> Derived:
    """The same model with the plan that shards most with at most ``collectives`` in a forward, checked."""
    plan = plan_within(derived.trace, collectives)
    return replace(derived, plan=plan, verdict=derived.checked(plan, derived.verdict.ranks))


def _attempts(trace: Trace, failed: Sequence[Verdict]) -> Iterator[Plan]:
    """The full plan, plans without the layers that failed, then plans with only pairs, and with only gathers."""
    flow = follow(trace)
    yield plan_of(flow, Aim())
    whole: frozenset[int] = frozenset()
    for whole in _without_layers(flow, failed):
        yield plan_of(flow, Aim(without=whole))
    if whole:
        yield plan_of(flow, Aim(without=whole, gather=False))
    yield plan_of(flow, Aim(gather=False))
    yield plan_of(flow, Aim(pairs=False))


def leaves_around(flow: Flow, layer: str) -> frozenset[int]:
    """The chosen axes in a module's parameters, or in those of its nearest parent that has any."""
    accepted = choose(flow).accepted
    words = layer.split(".")
    for count in range(len(words), 0, -1):
        start = ".".join(words[:count]) + "."
        inside = {number for number, p in enumerate(flow.trace.parameters) if p.name.startswith(start)}
        hit = [c for c in accepted if any(place.parameter in inside for place in c.places)]
        if hit:
            return frozenset(leaf for candidate in hit for leaf in candidate.leaves)
    return frozenset()


def prove(derived: Derived, plan: Plan, pool: RankPool, route: str = "ours") -> Verdict:
    """Run a plan on the pool's processes against the whole model, and on threads with the variants.

    The derived plan has been checked with the variants already.

    Args:
        route: by whose code, see ``Task``; ``committed`` is the plan in the model's own classes, instead of ``plan``.

    Returns:
        The first failing verdict of a rank, or the worst passing one.

    Raises ``RankError`` if a rank died or hung.
    """
    folder = ""
    if route in ("library", "committed"):
        folder = tempfile.mkdtemp(prefix="modular-plan-")
        model: Any = derived.small.model
        model.save_pretrained(folder)
    try:
        task = Task(derived.target, derived.small.strategy, derived.overrides, str(plan), route, folder)
        verdicts = pool.run(task)
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


def derive(module: torch.nn.Module, inputs: Mapping[str, Any] | Sequence[Any], ranks: int = 2) -> Derived:
    """The plan of any module, proven on a copy with random weights; the module itself is unchanged.

    Args:
        module: a small instance on the CPU; its plan holds for larger instances of the same classes.
        inputs: arguments of one forward, by name or in order.
        ranks: the number of ranks in the proof, 2 or 4.

    Returns:
        ``plan`` for ``parallelize(model, plan=…)``, ``verdict.evidence`` with the scope of the proof, and
        ``hindrances``: why weights stay whole, with the line of code and the cure.

    Raises ``PlanError`` if the module is too large or not on the CPU, its forward fails, or the plan does not hold.
    """
    with torch.random.fork_rng(devices=[]):
        small = small_copy(module, inputs)
        kind = f"{type(module).__module__}.{type(module).__qualname__}"
        try:
            subject = subject_of(small.model, small.inputs)
        except Exception as error:  # any error of the module's own code
            raise BuildError(f"{small.name}: forward fails: {one_line(error)}") from error
        found = derived_from(Target(small.name, kind, ""), small, subject, ranks, {})
    if not found.verdict.passed:
        raise PlanError(f"{small.name}: no plan holds: {placed(found.verdict.layer, found.verdict.reason)}")
    return found


def small_copy(module: torch.nn.Module, inputs: Mapping[str, Any] | Sequence[Any]) -> Small:
    """A copy of a module with random weights, in eval mode, and the arguments of one forward by name.

    Raises ``BuildError`` if the module is too large or not on the CPU, or its forward does not take or run with the inputs.
    """
    name = type(module).__name__
    if not isinstance(module, torch.nn.Module):
        raise BuildError(f"{name}: give a torch.nn.Module")
    if any(tensor.device.type != "cpu" for tensor in (*module.parameters(), *module.buffers())):
        raise BuildError(f"{name}: give an instance on the CPU")
    if sum(parameter.numel() for parameter in module.parameters()) > MOST_PARAMETERS:
        limit = f"{MOST_PARAMETERS / 1e6:.0f} M parameters"
        raise BuildError(
            f"{name}: more than {limit}; give a smaller instance, and its plan as plan=: it holds for larger ones"
        )
    made = copy_of(module).eval()
    given = inputs_by_name(made, inputs)
    randomise(made, SEED)
    try:
        with unchanged(made), torch.no_grad():
            made(**given)
    except Exception as error:  # any error of the module's own code
        raise BuildError(f"{name}: forward fails: {one_line(error)}") from error
    return Small(name, "", made, given)


@dataclass(frozen=True)
class HeadVariant:
    """A small instance with another ratio or in another use, its numbers, and the ratio or the use in words."""

    small: Small
    subject: Subject
    ratio: str

    @functools.cached_property
    def finer(self) -> Subject | None:
        """The numbers in float64, if float32 is too coarse for outputs without gradients; else None."""
        return None if self.subject.whole.gradients else finer_outputs(self.subject)


def head_variants(target: Target, small: Small, overrides: Mapping[str, Any]) -> tuple[HeadVariant, ...]:
    """The model with grouped heads if its heads are not grouped, and with ungrouped heads if they are.

    The variant's heads are wider, too, if the model can be built so. There is no variant if the caller gave a ratio, the
    ratio changes no weight, or the model does not run with it.
    """
    config = getattr(small.model, "config", None)
    ratio, ratio_text = other_ratios(config, list(overrides))
    if not ratio:
        return ()
    wider = wider_heads(config, list(overrides))
    variant = None
    if wider:
        variant = _variant(target, small, {**overrides, **ratio, **wider}, f"{ratio_text} and heads twice as wide")
    variant = variant or _variant(target, small, {**overrides, **ratio}, ratio_text)
    return (variant,) if variant and _shapes(variant.small) != _shapes(small) else ()


def _variant(target: Target, small: Small, overrides: Mapping[str, Any], ratio: str) -> HeadVariant | None:
    try:
        other = build(target, overrides, small.strategy)
        subject = subject_of(other.model, other.inputs, second=False)
    except Exception:  # a model without grouped heads may raise any error
        return None
    finite = any(bool(torch.isfinite(tensor).all()) for tensor in subject.whole.outputs)
    return HeadVariant(other, subject, ratio) if finite else None


def _shapes(small: Small) -> dict[str, Any]:
    return {name: parameter.shape for name, parameter in small.model.named_parameters()}


def refusal(variants: Sequence[HeadVariant], plan: Plan, ranks: int) -> Verdict | None:
    """The verdict of the first variant that refuses a plan, with its ratio in the reason; None if all pass."""
    for variant in variants:
        verdict = check_on_threads(variant.subject, plan, ranks)
        if not verdict.passed and variant.finer is not None:
            verdict = check_on_threads(variant.finer, plan, ranks)
        if not verdict.passed:
            return replace(verdict, reason=f"{verdict.reason}, with {variant.ratio}")
    return None


@dataclass(frozen=True, eq=False)
class Instance:
    """A small instance with its numbers, which are computed once for all plans.

    Attributes:
        overrides: the settings of its configuration.
    """

    target: Target
    small: Small
    overrides: Mapping[str, Any]

    @functools.cached_property
    def subject(self) -> Subject:
        """The numbers of one plain forward."""
        return subject_of(self.small.model, self.small.inputs)

    @functools.cached_property
    def in_use(self) -> tuple[HeadVariant, ...]:
        """The other uses that run, each with its numbers."""
        return variants_in_use(self.target, self.small, self.overrides)

    @functools.cached_property
    def untried(self) -> tuple[str, ...]:
        """The sides of branches on data that no run has tried, in words."""
        return tuple(untried_branches(self.small, (use.ratio for use in self.in_use)))

    @functools.cached_property
    def unproven_arguments(self) -> frozenset[str]:
        """The optional arguments of the forward in no run."""
        runs = (self.small, *(use.small for use in self.in_use))
        given = {name for run in runs for name in arguments_of_use(run)}
        return frozenset(optional_arguments(self.small.model)) - given - set(self.subject.evidence.arguments)

    @property
    def without_a_run(self) -> tuple[str, ...]:
        """The branches on data and the arguments in no run, in words."""
        return (*self.untried, *(f"the argument {name}" for name in sorted(self.unproven_arguments)))

    @one_thread()
    def verdict(self, plan: Plan, ranks: int) -> Verdict:
        """The verdict on a plan in all uses, with threads as ranks."""
        verdict = check_on_threads(self.subject, plan, ranks)
        refused = refusal(self.in_use, plan, ranks) if verdict.passed else None
        return refused or self.with_uses(verdict)

    def with_uses(self, verdict: Verdict) -> Verdict:
        """The verdict on a plan that holds in all uses, with the uses and their gaps in its evidence."""
        if not verdict.passed:
            return verdict
        evidence = verdict.evidence.with_gap(*self.without_a_run)
        return replace(verdict, evidence=replace(evidence, uses=tuple(use.ratio for use in self.in_use)))


def variants_in_use(target: Target, instance: Small, overrides: Mapping[str, Any]) -> tuple[HeadVariant, ...]:
    """The uses of a small instance that run, each with its numbers."""
    found = []
    for use in uses_of(target, instance, overrides):
        numbers = in_fitting_precision if use.learns else outputs_alone
        small = replace(use.small, model=copy_of(use.small.model))  # a model may keep arguments of a call
        try:
            subject = numbers(small.model, small.inputs)
        except (
            Exception
        ):  # of the model's code, as where torch's fast path alone takes an argument: it stays without a run
            continue
        found.append(HeadVariant(small, subject, use.description))
    return tuple(found)
