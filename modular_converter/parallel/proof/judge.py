"""Compare the numbers of a sharded model with the whole model's, entry by entry: outputs, decoded tokens, gradients."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from modular_converter.parallel.proof.deviation import (
    Share,
    errors_of,
    errors_of_backwards,
    is_inexact,
    relative_error,
    scale_of,
    significant,
)
from modular_converter.parallel.proof.evidence import UNKNOWN, Evidence


# Relative to the entry, or to the scale of its tensor if the entry is smaller.
OUTPUT_TOLERANCE = 2e-4
GRADIENT_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Verdict:
    """The outcome on one rank. ``layer`` and ``reason`` are empty if everything agrees.

    Attributes:
        ranks: the number of ranks, or of stages.
        output_error, gradient_error: the largest relative deviation of an entry.
        collectives: the number of collectives in one forward.
        evidence: the runs, and the gaps between them.
    """

    ranks: int
    output_error: float
    gradient_error: float
    layer: str = ""
    reason: str = ""
    collectives: int = 0
    evidence: Evidence = UNKNOWN

    @property
    def passed(self) -> bool:
        return not self.reason

    def to_json(self) -> dict[str, Any]:
        """The verdict and its evidence as JSON values; an error that is not finite is None."""
        errors = {name: getattr(self, name) for name in ("output_error", "gradient_error")}
        return {
            "verified": self.passed,
            "layer": self.layer,
            "reason": self.reason,
            **{name: error if math.isfinite(error) else None for name, error in errors.items()},
            "collectives": self.collectives,
            "evidence": self.evidence.to_json(),
        }


@dataclass
class Reference:
    """The numbers of one run.

    Attributes:
        outputs: all tensors that the model returned, in order.
        gradients: for each backward, first name of a parameter -> gradient.
        collectives: the number of collectives in the forward.
        tokens: logits of the first decoded tokens, for a model that generates.
        scales: of the tensors at which backwards start.
        start: the module at whose outputs backwards start; empty for the model's own outputs.
        unstable: indices of the outputs that rounding decides.
        gaps: values that are not compared, in words.
    """

    outputs: list[torch.Tensor]
    gradients: list[dict[str, torch.Tensor]]
    collectives: int = 0
    tokens: list[torch.Tensor] = field(default_factory=list)
    scales: list[float] = field(default_factory=list)
    start: str = ""
    unstable: frozenset[int] = frozenset()
    gaps: tuple[str, ...] = ()

    @functools.cached_property
    def proven(self) -> set[str]:
        """The parameters with a significant gradient in one of the backwards."""
        return set().union(*(significant(gradients) for gradients in self.gradients))


def refused(ranks: int, layer: str, reason: str) -> Verdict:
    """The verdict on a run without comparable numbers."""
    return Verdict(ranks, math.inf, math.inf, layer, reason)


def both_draws(first: Verdict, second: Verdict, situation: str = "other weights") -> Verdict:
    """The verdict on a plan that passed with a first draw of weights, after a run with a second draw in a situation."""
    if not second.passed:
        return replace(second, reason=f"{second.reason} (with {situation})")
    return replace(
        first,
        output_error=max(first.output_error, second.output_error),
        gradient_error=max(first.gradient_error, second.gradient_error),
        evidence=first.evidence.also(second.evidence),
    )


def judge(found: Reference, whole: Reference, ranks: int, share: Share | None = None) -> Verdict:
    """Compare one rank's numbers with the whole model's.

    Args:
        share: parameter name and whole gradient -> this rank's share; the whole gradient if None.
    """
    reason = _cannot_compare(found, whole)
    if reason:
        return refused(ranks, "the outputs", reason)
    pairs = enumerate(zip(found.outputs, whole.outputs))
    outputs = [0.0 if n in whole.unstable else relative_error(got, want) for n, (got, want) in pairs]
    tokens = errors_of(found.tokens, whole.tokens)
    gradients = errors_of_backwards(found.gradients, whole.gradients, share)
    layer, reason = _first_difference(outputs, tokens, gradients)
    worst = max(gradients.values(), default=0.0)
    gaps = (*whole.gaps, *(f"output {n} {why}" for n, why in _silent(whole).items()))
    evidence = Evidence(ranks=(ranks,), gaps=gaps)
    return Verdict(ranks, max(outputs + tokens), worst, layer, reason, found.collectives, evidence)


def _silent(whole: Reference) -> dict[int, str]:
    """Index of an output that proves nothing -> the reason."""
    found = {}
    for number, tensor in enumerate(whole.outputs):
        if number in whole.unstable:
            found[number] = "is decided by rounding"
        elif tensor.numel() and is_inexact(tensor) and not scale_of(tensor):
            found[number] = "has nothing but zeros" if bool((tensor == 0).any()) else "has no finite entry"
    return found


def _cannot_compare(found: Reference, whole: Reference) -> str:
    if len(found.outputs) != len(whole.outputs):
        return proves_nothing(whole) or f"{len(found.outputs)} outputs instead of {len(whole.outputs)}"
    return proves_nothing(whole)


def proves_nothing(whole: Reference) -> str:
    """The reason why no output of a whole model proves anything about a plan; empty if one does."""
    silent = _silent(whole)
    inexact = [number for number, tensor in enumerate(whole.outputs) if is_inexact(tensor) and tensor.numel()]
    if not inexact:
        return "no floating output to compare"
    if not set(inexact) - silent.keys():
        why = silent[inexact[0]]
        return "the whole model's own outputs are not finite" if "finite" in why else f"each output {why}"
    return ""


def _first_difference(
    outputs: Sequence[float], tokens: Sequence[float], gradients: Mapping[str, float]
) -> tuple[str, str]:
    """The layer and the reason of the first error beyond its tolerance; empty if there is none."""
    for index, error in enumerate(outputs):
        if not error <= OUTPUT_TOLERANCE:
            return "the outputs", f"output {index} differs by {error:.2g} of its scale"
    if not max(tokens, default=0.0) <= OUTPUT_TOLERANCE:
        return "the decoded tokens", f"their logits differ by {max(tokens):.2g} of their scale"
    for name, error in gradients.items():
        if not error <= GRADIENT_TOLERANCE:
            return name, f"the gradient of {name} differs by {error:.2g} of its scale"
    return "", ""
