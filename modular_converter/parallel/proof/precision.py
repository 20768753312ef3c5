"""The precision in which a model's numbers are compared, and the gradients that rounding decides in any precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from modular_converter.parallel.proof.compare import reference, run_model
from modular_converter.parallel.proof.judge import (
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    UNKNOWN,
    Evidence,
    Reference,
    errors_of,
    gradient_errors,
)
from modular_converter.parallel.tiny.build import copy_of
from modular_converter.parallel.trace.unchanged import unchanged


Numbers = Callable[[torch.nn.Module, Mapping[str, Any]], Reference]
# Relative noise in float64, of the size of hundreds of roundings, which another order of sums may cause.
_NOISE = 1e-13
# Part of the tolerance for rounding: a sharded model may deviate as much as float32 from float64, and somewhat more.
_MARGIN = 0.1
# Draws of noise: one draw may leave a gradient unchanged that another changes.
_DRAWS = 3


@dataclass(frozen=True)
class Subject:
    """A whole model, its inputs and its numbers, in the precision of the comparison.

    Attributes:
        evidence: of the whole model's runs.
        again: the same with other weights in another situation, without decoding; None without such numbers.
    """

    model: torch.nn.Module
    inputs: Mapping[str, Any]
    whole: Reference
    evidence: Evidence = UNKNOWN
    again: Subject | None = None


def in_fitting_precision(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Subject:
    """The model, its inputs and its numbers, in float32, or in float64 if both differ beyond the tolerance.

    Random weights can saturate a softmax: then a float32 gradient is only rounding, and depends on the order of sums.
    Gradients that rounding decides in float64, too, are not compared.
    """
    single = Subject(model, inputs, reference(model, inputs))
    double = in_float64(model, inputs)
    if double is None or _agree(single.whole, double.whole) or not _as_finite(double.whole, single.whole):
        return single
    return without_unstable(double)


def in_float64(model: torch.nn.Module, inputs: Mapping[str, Any], numbers: Numbers = reference) -> Subject | None:
    """The same in float64; None for a model whose code fixes a type.

    Tensors that are neither parameters nor buffers, such as a table from the first forward, are converted only if the model
    does not run otherwise: some of them must keep their type.
    """
    wide = {name: doubled(value) for name, value in inputs.items()}
    for attributes_too in (False, True):
        fine = copy_of(model).double()
        if attributes_too and not _double_attributes(fine):
            return None
        try:
            return Subject(fine, wide, numbers(fine, wide))
        except Exception:  # mixed types may raise any error
            continue
    return None


def _double_attributes(model: torch.nn.Module) -> bool:
    """Convert the tensors that modules keep as plain attributes. Returns whether there were any."""
    found = False
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                vars(module)[name] = value.double()
                found = True
    return found


def outputs_alone(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Subject:
    """The model, its inputs and its outputs, without gradients."""
    return Subject(model, inputs, _outputs(model, inputs))


def finer_outputs(single: Subject) -> Subject | None:
    """The same in float64, if float32 is too coarse for the outputs and float64 runs; else None."""
    double = in_float64(single.model, single.inputs, _outputs)
    if double is None:
        return None
    errors = errors_of([doubled(tensor) for tensor in single.whole.outputs], double.whole.outputs)
    finite = all(bool(t.isfinite().all()) for t in double.whole.outputs if t.is_floating_point())
    return double if finite and not max(errors, default=0.0) <= OUTPUT_TOLERANCE * _MARGIN else None


def _outputs(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Reference:
    with unchanged(model):
        return run_model(model, inputs, gradients=False)


def _as_finite(double: Reference, single: Reference) -> bool:
    """Whether all finite values of float32 are finite in float64, where some masks overflow or gradients become NaN."""
    if len(double.outputs) != len(single.outputs) or double.start != single.start:
        return False
    fewer = [_finite_entries(d) < _finite_entries(s) for d, s in zip(double.outputs, single.outputs)]
    for fine, coarse in zip(double.gradients, single.gradients):
        fewer += [_finite_entries(fine[name]) < _finite_entries(coarse[name]) for name in fine.keys() & coarse.keys()]
    return not any(fewer)


def _finite_entries(tensor: torch.Tensor) -> int:
    return int(torch.isfinite(tensor).sum())


def without_unstable(subject: Subject) -> Subject:
    """The subject without the outputs and gradients that noise of the size of rounding changes.

    In object detectors these are all gradients before a choice of boxes, whose weights only the outputs prove. The limit is
    below the tolerance, because another order of sums may change a number by more.
    """
    whole = subject.whole
    kept = [dict(gradients) for gradients in whole.gradients]
    unstable: set[int] = set()
    for seed in range(_DRAWS):
        noisy = _with_noise(subject.model, seed)
        together = len(kept) == 1
        with unchanged(noisy):
            found = run_model(noisy, subject.inputs, bool(kept), None, whole.start, together, whole.scales)
        errors = errors_of(found.outputs, whole.outputs)
        unstable |= {number for number, error in enumerate(errors) if not error <= OUTPUT_TOLERANCE * _MARGIN}
        for moved, gradients in zip(found.gradients, kept):
            for name, error in gradient_errors(moved, gradients).items():
                if not error <= GRADIENT_TOLERANCE * _MARGIN:
                    del gradients[name]
    names = {name for gradients in whole.gradients for name in gradients}
    lost = names - {name for gradients in kept for name in gradients}
    gaps = (f"gradients of {len(lost)} weights: rounding decides them",) if lost else ()
    whole = replace(whole, gradients=kept, unstable=frozenset(unstable), gaps=(*whole.gaps, *gaps))
    return replace(subject, whole=whole)


def _with_noise(model: torch.nn.Module, seed: int) -> torch.nn.Module:
    generator = torch.Generator().manual_seed(seed)
    noisy = copy_of(model)
    with torch.no_grad():
        for parameter in noisy.parameters():
            if parameter.is_floating_point():
                noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
                parameter.mul_(1 + _NOISE * noise)
    return noisy


def _agree(single: Reference, double: Reference) -> bool:
    """Whether float32 and float64 give the same numbers, well within the tolerances."""
    if [found.keys() for found in single.gradients] != [found.keys() for found in double.gradients]:
        return False
    errors = errors_of([doubled(tensor) for tensor in single.outputs], double.outputs)
    if not all(error <= OUTPUT_TOLERANCE * _MARGIN for error in errors):
        return False
    for coarse, fine in zip(single.gradients, double.gradients):
        wide = {name: gradient.double() for name, gradient in coarse.items()}
        if not all(error <= GRADIENT_TOLERANCE * _MARGIN for error in gradient_errors(wide, fine).values()):
            return False
    return True


def doubled(value: Any) -> Any:
    """A value with all floating tensors in lists and tuples converted to float64."""
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(doubled(item) for item in value)
    return value
