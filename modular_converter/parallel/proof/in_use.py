"""Plans checked in further uses of a model and on variants of its heads."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.judge import Verdict
from modular_converter.parallel.proof.on_ranks import check_on_threads
from modular_converter.parallel.proof.precision import Subject, finer_outputs, in_fitting_precision, outputs_alone
from modular_converter.parallel.proof.subject import subject_of
from modular_converter.parallel.tiny.arguments import optional_arguments
from modular_converter.parallel.tiny.build import Small, Target, build, copy_of
from modular_converter.parallel.tiny.fields import other_ratios, wider_heads
from modular_converter.parallel.tiny.uses import arguments_of_use, untried_branches, uses_of


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
