"""In which precision a model's numbers mean something, and which of them mean nothing in any."""

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


# Relative, in float64: hundreds of roundings. What this much changes, another order of sums may change.
_NOISE = 1e-13
# One draw may miss a gradient that the next one shows.
_SHAKES = 3


@dataclass(frozen=True)
class Subject:
    """A whole model, its inputs and its numbers, in the precision in which they are compared."""

    model: torch.nn.Module
    inputs: Mapping[str, Any]
    whole: Reference


def conditioned(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Subject:
    """The model, its inputs and its numbers, in a precision in which they mean something.

    Random weights can saturate a softmax: then a float32 gradient is rounding alone, and any other order of sums
    gives another one. Where float64 disagrees with float32 by more than the tolerance, all is done in float64; and
    what float64 cannot hold either is left out of the comparison.
    """
    found = _conditioned(model, inputs)
    return replace(found, whole=replace(found.whole, tokens=decoded_whole(found.model, found.inputs)))


def _conditioned(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Subject:
    single = Subject(model, inputs, reference(model, inputs))
    try:
        fine = copy.deepcopy(model).double()
        fine_inputs = {name: _doubled(value) for name, value in inputs.items()}
        double = Subject(fine, fine_inputs, reference(fine, fine_inputs))
    except Exception:  # a model with a type of its own somewhere: float32 has to do
        return single
    if _agree(single.whole, double.whole) or not _finite(double.whole):
        return single
    return _steady(double)


def _finite(found: Reference) -> bool:
    """Some models' masks overflow in float64."""
    return any(bool(torch.isfinite(tensor).all()) for tensor in found.outputs)


def _steady(subject: Subject) -> Subject:
    """Without the gradients that noise of the size of rounding changes: in object detectors, all behind a choice of
    boxes. Their weights are proven by the outputs alone.
    """
    kept = dict(subject.whole.gradients)
    for seed in range(_SHAKES):
        found = reference(_shaken(subject.model, seed), subject.inputs).gradients
        errors = gradient_errors(found, subject.whole.gradients)
        kept = {name: kept[name] for name in kept if errors[name] <= GRADIENT_TOLERANCE}
    return replace(subject, whole=replace(subject.whole, gradients=kept))


def _shaken(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(seed)
    shaken = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in shaken.parameters():
            if parameter.is_floating_point():
                noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
                parameter.mul_(1 + _NOISE * noise)
    return shaken


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
