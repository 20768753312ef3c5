"""The precision in which a model's numbers are compared, and the gradients that no precision can hold."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from modular_converter.parallel.proof.compare import reference
from modular_converter.parallel.proof.decode import decoded_whole
from modular_converter.parallel.proof.judge import (
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    Reference,
    errors_of,
    gradient_errors,
)


# Relative, in float64: hundreds of roundings. Another order of sums may change a number as much as this noise does.
_NOISE = 1e-13
# One draw of noise may leave a gradient alone that the next one changes.
_DRAWS = 3


@dataclass(frozen=True)
class Subject:
    """A whole model, its inputs and its numbers, in the precision in which they are compared."""

    model: torch.nn.Module
    inputs: Mapping[str, Any]
    whole: Reference


def subject_of(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Subject:
    """The model, its inputs and its numbers, in float32, or in float64 where the two disagree beyond the tolerance.

    Random weights can saturate a softmax: then a float32 gradient is rounding alone, and another order of sums gives
    another gradient. Gradients that rounding decides in float64 too are left out of the comparison.
    """
    found = _in_fitting_precision(model, inputs)
    return replace(found, whole=replace(found.whole, tokens=decoded_whole(found.model, found.inputs)))


def _in_fitting_precision(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Subject:
    single = Subject(model, inputs, reference(model, inputs))
    try:
        fine = copy.deepcopy(model).double()
        fine_inputs = {name: _doubled(value) for name, value in inputs.items()}
        double = Subject(fine, fine_inputs, reference(fine, fine_inputs))
    except Exception:  # a model that fixes a type somewhere: float32 has to do
        return single
    if _agree(single.whole, double.whole) or not _finite(double.whole):
        return single
    return _without_unstable_gradients(double)


def _finite(found: Reference) -> bool:
    """Some models' masks overflow in float64."""
    return any(bool(torch.isfinite(tensor).all()) for tensor in found.outputs)


def _without_unstable_gradients(subject: Subject) -> Subject:
    """The subject without the gradients that noise of the size of rounding changes.

    In object detectors these are all gradients behind a choice of boxes. The outputs alone prove their weights.
    """
    kept = dict(subject.whole.gradients)
    for seed in range(_DRAWS):
        found = reference(_with_noise(subject.model, seed), subject.inputs).gradients
        errors = gradient_errors(found, subject.whole.gradients)
        kept = {name: kept[name] for name in kept if errors[name] <= GRADIENT_TOLERANCE}
    return replace(subject, whole=replace(subject.whole, gradients=kept))


def _with_noise(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(seed)
    noisy = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in noisy.parameters():
            if parameter.is_floating_point():
                noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
                parameter.mul_(1 + _NOISE * noise)
    return noisy


def _agree(single: Reference, double: Reference) -> bool:
    """Whether float32 and float64 give the same numbers within the tolerances of a verdict."""
    if single.gradients.keys() != double.gradients.keys():
        return False
    errors = errors_of([tensor.double() for tensor in single.outputs], double.outputs)
    if not all(error <= OUTPUT_TOLERANCE for error in errors):
        return False
    wide = {name: gradient.double() for name, gradient in single.gradients.items()}
    return all(error <= GRADIENT_TOLERANCE for error in gradient_errors(wide, double.gradients).values())


def _doubled(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(_doubled(item) for item in value)
    return value
