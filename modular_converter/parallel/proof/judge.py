"""Whether the numbers of a sharded model are those of the whole one: outputs, decoded tokens, gradients.

Nothing here runs a model. Other runs are compared with the whole model's, number by number, relative to a scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch


# Relative to the largest entry of the whole model's tensor, float32. Right plans stay below 1e-5 of it; the smallest
# wrong ones seen in the tests are above 1e-2.
OUTPUT_TOLERANCE = 2e-4
GRADIENT_TOLERANCE = 1e-3
# Added to every scale, so that a tensor of zeros has one.
_FLOOR = 1e-6
# A gradient is judged beside this share of the largest one: key biases under a softmax have none but rounding.
_SMALL = 1e-3


@dataclass(frozen=True)
class Verdict:
    """The outcome on one rank. ``layer`` and ``reason`` are empty when everything agrees.

    Attributes:
        ranks: how many there are, or stages.
        output_error, gradient_error: largest deviation, relative to the largest entry of the tensor.
        collectives: calls between the ranks in one forward, counted.
        unproven: sharded parameters that no gradient reaches, so that only the outputs speak for them.
    """

    ranks: int
    output_error: float
    gradient_error: float
    layer: str = ""
    reason: str = ""
    collectives: int = 0
    unproven: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.reason


@dataclass
class Reference:
    """The numbers of one run.

    Attributes:
        outputs: floating tensors, in order.
        gradients: by the parameter's first name.
        collectives: calls between ranks in the forward.
        tokens: logits of the first decoded tokens, for a model that generates.
    """

    outputs: list[torch.Tensor]
    gradients: dict[str, torch.Tensor]
    collectives: int = 0
    tokens: list[torch.Tensor] = field(default_factory=list)


Share = Callable[[str, torch.Tensor], torch.Tensor]


def refused(ranks: int, layer: str, reason: str) -> Verdict:
    """The verdict on a run that came to no numbers, or to none that can be compared."""
    return Verdict(ranks, math.inf, math.inf, layer, reason)


def judge(found: Reference, whole: Reference, ranks: int, share: Share | None = None) -> Verdict:
    """Compare one rank's numbers with the whole model's.

    Args:
        share: from a parameter's name and whole gradient to the part of it that this rank has; all of it if None.
    """
    reason = _cannot_compare(found, whole)
    if reason:
        return refused(ranks, "the outputs", reason)
    outputs = errors_of(found.outputs, whole.outputs)
    tokens = errors_of(found.tokens, whole.tokens)
    gradients = gradient_errors(found.gradients, whole.gradients, share)
    layer, reason = _first_difference(outputs, tokens, gradients)
    worst = max(gradients.values(), default=0.0)
    return Verdict(ranks, max(outputs + tokens), worst, layer, reason, found.collectives)


def _cannot_compare(found: Reference, whole: Reference) -> str:
    if not whole.outputs:
        return "no floating output to compare"
    if not any(torch.isfinite(tensor).all() for tensor in whole.outputs):
        return "the whole model's own outputs are not finite"
    if len(found.outputs) != len(whole.outputs):
        return f"{len(found.outputs)} outputs instead of {len(whole.outputs)}"
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


def errors_of(found: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> list[float]:
    """The relative error of each tensor; infinite for one that only one side has."""
    missing = abs(len(found) - len(want))
    return [*(relative_error(one, other) for one, other in zip(found, want)), *[math.inf] * missing]


def worst_error(found: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> float:
    """The largest relative error; infinite where there is nothing to compare."""
    return max(errors_of(found, want), default=math.inf)


def gradient_errors(
    found: Mapping[str, torch.Tensor], want: Mapping[str, torch.Tensor], share: Share | None = None
) -> dict[str, float]:
    """The relative error of each gradient, by name; infinite for one that is missing.

    Args:
        share: as in ``judge``. Scales are those of whole gradients; small ones are judged beside the largest of all.
    """
    scales = {name: scale_of(gradient) for name, gradient in want.items()}
    least = max(scales.values(), default=0.0) * _SMALL
    errors = dict.fromkeys(want, math.inf)
    for name in want.keys() & found.keys():
        local = want[name] if share is None else share(name, want[name])
        errors[name] = relative_error(found[name], local, max(scales[name], least))
    return errors


def scale_of(tensor: torch.Tensor) -> float:
    """The largest finite entry."""
    if math.isfinite(largest := _largest(tensor)):
        return largest
    finite = tensor[torch.isfinite(tensor)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def relative_error(got: torch.Tensor, want: torch.Tensor, scale: float | None = None) -> float:
    """The largest deviation over the scale; infinite for another shape or other non-finite entries."""
    if got.shape != want.shape:
        return math.inf
    size = (scale_of(want) if scale is None else scale) + _FLOOR
    if math.isfinite(largest := _largest(got - want)):  # so both are finite everywhere
        return largest / size
    finite = torch.isfinite(want)
    if not torch.equal(torch.isfinite(got), finite):
        return math.inf
    if not torch.allclose(got[~finite], want[~finite], equal_nan=True):
        return math.inf
    return float((got[finite] - want[finite]).abs().max()) / size if finite.any() else 0.0


def _largest(tensor: torch.Tensor) -> float:
    """The largest magnitude, in one pass; not finite if any entry is not."""
    if not tensor.numel():
        return 0.0
    if tensor.is_complex():
        return float(tensor.abs().max())
    low, high = tensor.aminmax()
    return max(-float(low), float(high)) + 0.0
