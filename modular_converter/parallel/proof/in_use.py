"""A model in other uses than one plain forward, on which a plan must hold too; see ``tiny/uses.py``."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.proof.compare import run_model
from modular_converter.parallel.proof.deviation import errors_of
from modular_converter.parallel.proof.head_variants import HeadVariant
from modular_converter.parallel.proof.judge import OUTPUT_TOLERANCE, Reference
from modular_converter.parallel.proof.precision import Subject, doubled, in_fitting_precision, in_float64
from modular_converter.parallel.proof.subject import subject_of
from modular_converter.parallel.proof.unchanged import unchanged
from modular_converter.parallel.tiny.arguments import optional_arguments
from modular_converter.parallel.tiny.build import Small, Target
from modular_converter.parallel.tiny.uses import untried_branches, uses_of


# Noise of float32 may be this part of the tolerance.
_MARGIN = 0.1


@dataclass(frozen=True, eq=False)
class Instance:
    """A small instance with its numbers, which several plans are held against; they are computed when they are asked for.

    Attributes:
        overrides: the settings that it was built with.
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
        """The other uses in which it runs, each with its numbers."""
        return variants_in_use(self.target, self.small, self.overrides)

    @functools.cached_property
    def untried(self) -> tuple[str, ...]:
        """The other sides of branches on data that no run has shown, in words."""
        return tuple(untried_branches(self.small, (use.ratio for use in self.in_use)))

    @functools.cached_property
    def unproven_arguments(self) -> frozenset[str]:
        """The optional arguments of the forward that no run has been given."""
        runs = (self.small, *(use.small for use in self.in_use))
        given = {name for run in runs for name, value in run.inputs.items() if value is not None}
        return frozenset(optional_arguments(self.small.model)) - given - set(self.subject.evidence.arguments)


def variants_in_use(target: Target, small: Small, overrides: Mapping[str, Any]) -> tuple[HeadVariant, ...]:
    """The uses in which a small instance runs, each with its numbers."""
    found = []
    for use in uses_of(target, small, overrides):
        subject = in_fitting_precision(use.small.model, use.small.inputs) if use.learns else _outputs(use.small)
        found.append(HeadVariant(use.small, subject, use.said))
    return tuple(found)


def _outputs(small: Small) -> Subject:
    """The numbers without gradients, in float64 where float32 is too coarse and float64 runs."""
    single = Subject(small.model, small.inputs, _numbers(small.model, small.inputs))
    double = in_float64(small.model, small.inputs, _numbers)
    if double is None:
        return single
    pairs = zip(single.whole.outputs, double.whole.outputs)
    errors = errors_of([doubled(one) for one, _ in pairs], double.whole.outputs)
    finite = all(bool(t.isfinite().all()) for t in double.whole.outputs if t.is_floating_point())
    return double if finite and not max(errors, default=0.0) <= OUTPUT_TOLERANCE * _MARGIN else single


def _numbers(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Reference:
    with unchanged(model):
        return run_model(model, inputs, gradients=False)
