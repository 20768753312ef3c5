"""The deviation between the tensors of two runs, entry by entry, on a scale that extreme entries do not set."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy
import torch


Share = Callable[[str, torch.Tensor], torch.Tensor]
Gradients = Mapping[str, torch.Tensor]
HALF_TYPES = (torch.float16, torch.bfloat16)
# The number of entries in the estimate of a scale: enough for a quartile, and fast to sort.
_SAMPLE = 4096
# For gradients, sums of terms that cancel: their small entries are rounding.
_MEDIAN = 0.5
# The least scale of a gradient, relative to the largest scale: key biases under a softmax have only rounding errors.
_SMALL = 1e-3
# A gradient below this fraction of the largest scale proves nothing: half of it could be missing unnoticed.
_NOTHING = 1e-5


def is_inexact(tensor: torch.Tensor) -> bool:
    """Whether the entries are rounded: floating or complex numbers. Integers and booleans are compared exactly."""
    return tensor.is_floating_point() or tensor.is_complex()


def scale_of(tensor: torch.Tensor, part: float = 0.25) -> float:
    """The lower quartile of the distinct magnitudes, without zeros and non-finite entries; 0 if there are no others.

    A mask value counts once, whatever its number of entries, and a large region cannot hide a small one.

    Args:
        part: the fraction of the magnitudes below the scale.
    """
    flat = tensor.detach().reshape(-1)
    if flat.numel() > _SAMPLE:
        found = _magnitudes(flat[_picked(flat.numel()).to(flat.device)])
        if found.size:
            return float(found[int((found.size - 1) * part)])
    found = _magnitudes(flat)
    return float(found[int((found.size - 1) * part)]) if found.size else 0.0


@functools.lru_cache(maxsize=64)
def _picked(count: int) -> torch.Tensor:
    """The indices of a sample among ``count`` entries."""
    return torch.randint(count, (_SAMPLE,), generator=torch.Generator().manual_seed(5))


def _magnitudes(flat: torch.Tensor) -> Any:
    """The distinct finite magnitudes above zero, in order; numpy sorts ten times as fast as torch."""
    sizes = flat.abs()
    sizes = sizes.float() if sizes.dtype in HALF_TYPES else sizes
    found = numpy.unique(sizes.cpu().numpy())
    return found[numpy.isfinite(found) & (found > 0)]


def relative_error(got: torch.Tensor, want: torch.Tensor, scale: float | None = None) -> float:
    """The largest deviation of an entry, relative to its magnitude, or to the scale if the entry is smaller.

    Infinite if shapes, exact tensors or non-finite entries differ.
    """
    if got.shape != want.shape or is_inexact(got) != is_inexact(want):
        return math.inf
    if not is_inexact(want):
        return 0.0 if got.dtype == want.dtype and torch.equal(got, want) else math.inf
    if not want.numel():
        return 0.0
    size = scale_of(want) if scale is None else scale
    error = float(_largest_error(got, want, size))
    if math.isfinite(error):
        return error
    finite = torch.isfinite(want)
    if not torch.equal(torch.isfinite(got), finite):
        return math.inf
    if not torch.allclose(got[~finite].to(want.dtype), want[~finite], equal_nan=True):
        return math.inf
    return float(_largest_error(got[finite], want[finite], size)) if finite.any() else 0.0


def _largest_error(got: torch.Tensor, want: torch.Tensor, size: float) -> torch.Tensor:
    magnitudes = want.abs()
    if want.dtype in HALF_TYPES:
        magnitudes = magnitudes.float()
    return ((got - want).abs() / magnitudes.clamp_min(max(size, torch.finfo(magnitudes.dtype).tiny))).max()


def errors_of(found: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> list[float]:
    """The relative error of each tensor; infinite for a tensor that only one side has."""
    missing = abs(len(found) - len(want))
    return [*(relative_error(one, other) for one, other in zip(found, want)), *[math.inf] * missing]


def worst_error(found: Sequence[torch.Tensor], want: Sequence[torch.Tensor]) -> float:
    """The largest relative error; infinite if there is nothing to compare."""
    return max(errors_of(found, want), default=math.inf)


def gradient_errors(found: Gradients, want: Gradients, share: Share | None = None) -> dict[str, float]:
    """Name -> relative error of each gradient of one backward; infinite for a missing gradient.

    Scales are those of whole gradients, and at least a fraction of the largest scale.

    Args:
        share: parameter name and whole gradient -> this rank's share; the whole gradient if None.
    """
    scales = {name: scale_of(gradient, _MEDIAN) for name, gradient in want.items()}
    least = max(scales.values(), default=0.0) * _SMALL
    errors = dict.fromkeys(want, math.inf)
    for name in want.keys() & found.keys():
        local = want[name] if share is None else share(name, want[name])
        errors[name] = relative_error(found[name], local, max(scales[name], least))
    return errors


def errors_of_backwards(
    found: Sequence[Gradients], want: Sequence[Gradients], share: Share | None = None
) -> dict[str, float]:
    """Name -> largest error of the gradients over all backwards; infinite for a missing backward."""
    errors: dict[str, float] = {}
    for number, whole in enumerate(want):
        for name, error in gradient_errors(found[number] if number < len(found) else {}, whole, share).items():
            errors[name] = error if not error <= errors.get(name, 0.0) else errors.get(name, 0.0)
    return errors


def significant(gradients: Gradients) -> set[str]:
    """The parameters with significant gradients in one backward: finite, and more than rounding."""
    finite = {name: gradient for name, gradient in gradients.items() if bool(torch.isfinite(gradient).all())}
    largest = {name: float(gradient.abs().max()) if gradient.numel() else 0.0 for name, gradient in finite.items()}
    scales = {name: scale_of(gradient, _MEDIAN) for name, gradient in finite.items()}
    least = max(scales.values(), default=0.0) * _NOTHING
    return {name for name in finite if largest[name] > least}
