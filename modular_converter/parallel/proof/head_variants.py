"""The same model with another ratio of key/value heads to heads, on which a plan must hold as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.judge import Verdict
from modular_converter.parallel.proof.on_threads import screen
from modular_converter.parallel.proof.precision import Subject, conditioned
from modular_converter.parallel.tiny.build import Small, Target, build
from modular_converter.parallel.tiny.head_ratios import other_ratios, wider_heads


@dataclass(frozen=True)
class Form:
    """A small instance with the other ratio, as it is compared, and the ratio in words."""

    small: Small
    subject: Subject
    said: str


def other_forms(target: Target, small: Small, overrides: Mapping[str, Any]) -> tuple[Form, ...]:
    """The form with grouped heads of a model with as many key/value heads as heads, or the other way round.

    Its heads are wider too, where the model can be built so. None where a ratio was asked for, where it changes no
    weight, and where the model cannot be run with it.
    """
    config = getattr(small.model, "config", None)
    ratio, said = other_ratios(config, list(overrides))
    if not ratio:
        return ()
    wider = wider_heads(config, list(overrides))
    form = _form(target, small, {**overrides, **ratio, **wider}, f"{said} and heads twice as wide") if wider else None
    form = form or _form(target, small, {**overrides, **ratio}, said)
    return (form,) if form and _shapes(form.small) != _shapes(small) else ()


def _form(target: Target, small: Small, overrides: Mapping[str, Any], said: str) -> Form | None:
    try:
        other = build(target, overrides, small.strategy)
        subject = conditioned(other.model, other.inputs)
    except Exception:  # a model that knows no groups fails in any way
        return None
    finite = any(bool(torch.isfinite(tensor).all()) for tensor in subject.whole.outputs)
    return Form(other, subject, said) if finite else None


def _shapes(small: Small) -> dict[str, Any]:
    return {name: parameter.shape for name, parameter in small.model.named_parameters()}


def refusal(forms: Sequence[Form], plan: Plan, ranks: int) -> Verdict | None:
    """The verdict of the first form that refuses a plan, with its ratio in the reason; None if all hold."""
    for form in forms:
        verdict = screen(form.subject, plan, ranks)
        if not verdict.passed:
            return replace(verdict, reason=f"{verdict.reason}, with {form.said}")
    return None
