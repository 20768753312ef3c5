"""Variants of a model with another ratio of key/value heads to heads, for which a plan must hold, too."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.judge import Verdict
from modular_converter.parallel.proof.on_threads import check_on_threads
from modular_converter.parallel.proof.precision import Subject, finer_outputs
from modular_converter.parallel.proof.subject import subject_of
from modular_converter.parallel.tiny.build import Small, Target, build
from modular_converter.parallel.tiny.fields import other_ratios, wider_heads


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
    ratio, said = other_ratios(config, list(overrides))
    if not ratio:
        return ()
    wider = wider_heads(config, list(overrides))
    variant = None
    if wider:
        variant = _variant(target, small, {**overrides, **ratio, **wider}, f"{said} and heads twice as wide")
    variant = variant or _variant(target, small, {**overrides, **ratio}, said)
    return (variant,) if variant and _shapes(variant.small) != _shapes(small) else ()


def _variant(target: Target, small: Small, overrides: Mapping[str, Any], said: str) -> HeadVariant | None:
    try:
        other = build(target, overrides, small.strategy)
        subject = subject_of(other.model, other.inputs, second=False)
    except Exception:  # a model without grouped heads may raise any error
        return None
    finite = any(bool(torch.isfinite(tensor).all()) for tensor in subject.whole.outputs)
    return HeadVariant(other, subject, said) if finite else None


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
