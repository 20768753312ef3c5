"""Compare a user's model with its ranks before the hand-over of its weights: one layer of each kind, on the same inputs.

A small instance, built from classes and a configuration, lacks layers that were replaced later, the values of weights,
and the types in use.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.choice.trials import inputs_with_data, kinds_of, of_type, one_of_each_kind
from modular_converter.parallel.errors import ApplyError, one_line
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.subject import with_mask
from modular_converter.parallel.tiny.build import SEED, seed_cpu
from modular_converter.parallel.trace.record import tensors_in
from modular_converter.parallel.trace.unchanged import same_attributes


# Relative to the norm of an output: wrong plans differ by a good part of it, another order of sums by a few roundings.
_TOLERANCE, _TOLERANCE_OF_HALF = 1e-3, 6e-2
# The fraction of exact outputs, such as places of a maximum, that may differ because of ties.
_EXACT = 0.02
# A model is run whole up to this number of parameters, if its short copy does not run.
_SMALL, _SMALL_TO_READ = 1_000_000_000, 50_000_000
_EXTREME = 1e30
_WRONG = "the plan is wrong for this model, which is unchanged: give another plan=, or run it on one device"
_DRAWS = (
    "it draws random numbers there, and its devices may draw others: leave the noise out until parallelize is through, or give "
    "probe=False"
)
Filled = Callable[[torch.nn.Module], torch.nn.Module]


@dataclass(frozen=True)
class Probe:
    """A model with one layer of each kind, which shares the user's weights; inputs, and its answers to them.

    Attributes:
        draws: whether it draws random numbers for an answer, which each answer does from the same state.
    """

    model: torch.nn.Module
    inputs: tuple[dict[str, Any], ...]
    answers: tuple[list[torch.Tensor], ...]
    draws: bool = False

    def difference(self, run: Callable[[dict[str, Any]], Any], half: bool) -> str:
        """The difference between another model's answers and the probe's, in words; empty if there is none.

        Args:
            run: computes the other model's answer to inputs.
            half: whether it computes in half precision.
        """
        for inputs, want in zip(self.inputs, self.answers):
            with _seeded():
                found = tensors_in(run(inputs))
            if len(found) != len(want):
                return f"{len(found)} outputs instead of {len(want)}"
            for number, pair in enumerate(zip(found, want)):
                error = norm_error(*pair)
                if not error <= (_TOLERANCE_OF_HALF if half else _TOLERANCE):
                    return f"output {number} differs by {error:.2g} of its norm"
        return ""


@contextlib.contextmanager
def _seeded() -> Iterator[None]:
    """Random numbers that are the same in each run; the caller's state is kept."""
    with torch.random.fork_rng(devices=[]):
        seed_cpu(SEED)
        yield


def probe_of(model: torch.nn.Module, plan: Plan | None = None, filled: Filled | None = None) -> Probe | str:
    """The probe of a user's model, or the reason why there is none.

    Args:
        plan: that is to be tried, if it is known.
        filled: makes a copy with weights, for a model without weights.
    """
    short: Any = one_of_each_kind(model, kinds_of(model), plan)
    tried: list[Any] = [short]
    if sum(parameter.numel() for parameter in model.parameters()) <= (_SMALL if filled is None else _SMALL_TO_READ):
        tried.append(model)
    reason = ""
    for candidate in tried:
        try:
            candidate = candidate if filled is None else filled(candidate)
            with _as_it_was(model), _as_it_was(candidate):  # they share modules, and the model makes the inputs
                found = list(_answered(candidate, model))
        except Exception as error:  # raised by the model's own code for unexpected inputs
            reason = one_line(error)
            continue
        inputs, answers, draws = zip(*found)
        if any(bool(t.isfinite().any()) for answer in answers for t in answer if t.is_floating_point()):
            return Probe(candidate, inputs, answers, any(draws))
        reason = "its answers are not finite"
    return reason


def refuse_difference(difference: str, where: str, draws: bool) -> None:
    """Raise ``ApplyError`` for a difference, if there is one."""
    if difference:
        cure = _DRAWS if draws else _WRONG
        raise ApplyError(f"one layer of each kind gives other numbers {where} ({difference}); {cure}")


def probe_with(model: torch.nn.Module, inputs: Iterable[dict[str, Any]]) -> Probe:
    """The probe of a model with given inputs. Raises the errors of its forward."""
    given = tuple(inputs)
    with _as_it_was(model):
        answers = [_answer(model, one) for one in given]
    return Probe(model, given, tuple(answer for answer, _ in answers), any(draws for _, draws in answers))


def _answered(candidate: Any, model: Any) -> Iterator[tuple[dict[str, Any], list[torch.Tensor], bool]]:
    """Inputs, their answers, and whether these need random numbers: with padding if the forward takes a mask, then without."""
    given = inputs_with_data(model)
    types = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    kind = next(iter(types)) if len(types) == 1 else torch.float32
    given = of_type(given, kind)
    padded = with_mask(model, given)
    if padded.keys() != given.keys():
        with contextlib.suppress(Exception):  # the model's own code may take no such mask
            yield padded, *_answer(candidate, padded)
    yield given, *_answer(candidate, given)


@contextlib.contextmanager
def _as_it_was(model: torch.nn.Module) -> Iterator[None]:
    """Restore the buffers and attributes that a forward writes to."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers() if not buffer.is_meta]
    with same_attributes(model):
        yield
    with torch.no_grad():
        for buffer, was in before:
            buffer.copy_(was)


def _answer(model: Any, inputs: dict[str, Any]) -> tuple[list[torch.Tensor], bool]:
    was = model.training
    with torch.no_grad(), _seeded():
        before = torch.get_rng_state()
        try:
            found = [tensor.clone() for tensor in tensors_in(model.eval().forward(**copy.copy(inputs)))]
        finally:
            model.train(was)
        return found, not torch.equal(before, torch.get_rng_state())


def norm_error(found: torch.Tensor, want: torch.Tensor) -> float:
    """The norm of the difference over the norm of the wanted values; for exact types 1 if too many entries differ."""
    if found.shape != want.shape:
        return float("inf")
    if not want.is_floating_point():
        wrong = float((found != want).double().mean()) if want.numel() else 0.0
        return 0.0 if wrong <= _EXACT else 1.0
    found, want = found.double().cpu(), want.double()
    known = want.isfinite() & (want.abs() < _EXTREME)
    if not torch.equal(known, found.isfinite() & (found.abs() < _EXTREME)):
        return float("inf")
    size = float(torch.linalg.vector_norm(want[known]))
    return float(torch.linalg.vector_norm((found - want)[known])) / size if size else 0.0
