"""A model in other uses than one plain forward, for which a plan must hold, too; see ``tiny/uses.py``."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.head_variants import HeadVariant, refusal
from modular_converter.parallel.proof.judge import Verdict
from modular_converter.parallel.proof.on_threads import check_on_threads
from modular_converter.parallel.proof.precision import Subject, in_fitting_precision, outputs_alone
from modular_converter.parallel.proof.subject import subject_of
from modular_converter.parallel.tiny.arguments import optional_arguments
from modular_converter.parallel.tiny.build import Small, Target
from modular_converter.parallel.tiny.copies import copy_of
from modular_converter.parallel.tiny.uses import arguments_of_use, untried_branches, uses_of


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
        found.append(HeadVariant(small, numbers(small.model, small.inputs), use.said))
    return tuple(found)
