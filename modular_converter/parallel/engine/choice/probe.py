"""Compare a user's model with its ranks before its weights are handed over: one layer of each kind, on the same inputs.

A small instance is built from classes and a configuration. It does not show layers that were replaced later, values of
weights, or the types in use.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.engine.choice.kinds_of_layers import kinds_of, one_of_each_kind
from modular_converter.parallel.errors import one_line
from modular_converter.parallel.tiny.inputs import make_inputs
from modular_converter.parallel.trace.record import tensors_in
from modular_converter.parallel.trace.unchanged import same_attributes


# The tolerance relative to the norm of an output. Wrong plans differ by parts of it; another order of sums by a few
# roundings.
_TOLERANCE, _TOLERANCE_OF_HALF = 1e-3, 6e-2
# Entries of exact outputs, such as places of a maximum, that may differ: ties.
_EXACT = 0.02
# A model without lists of layers is run whole up to this number of parameters.
_SMALL, _SMALL_TO_READ = 1_000_000_000, 50_000_000
_EXTREME = 1e30
Filled = Callable[[torch.nn.Module], torch.nn.Module]


@dataclass(frozen=True)
class Probe:
    """A model with one layer of each kind, which shares the weights of the model in hand; inputs and its own answers."""

    model: torch.nn.Module
    inputs: tuple[dict[str, Any], ...]
    answers: tuple[list[torch.Tensor], ...]

    def difference(self, run: Callable[[dict[str, Any]], Any], half: bool) -> str:
        """The difference of other answers from the model's own, in words; empty if there is none.

        Args:
            run: from inputs to an answer.
            half: whether the other answers are computed in a type of half precision.
        """
        for inputs, want in zip(self.inputs, self.answers):
            found = tensors_in(run(inputs))
            if len(found) != len(want):
                return f"{len(found)} outputs instead of {len(want)}"
            for number, (one, other) in enumerate(zip(found, want)):
                error = _error(one, other)
                if not error <= (_TOLERANCE_OF_HALF if half else _TOLERANCE):
                    return f"output {number} differs by {error:.2g} of its norm"
        return ""


def probe_of(model: torch.nn.Module, filled: Filled | None = None) -> Probe | str:
    """The probe of a model in hand, or the reason why it has none.

    Args:
        filled: makes a copy with weights of a model that has none.
    """
    short: Any = one_of_each_kind(model, kinds_of(model))
    tried: list[Any] = [short]
    if sum(parameter.numel() for parameter in model.parameters()) <= (_SMALL if filled is None else _SMALL_TO_READ):
        tried.append(model)
    reason = ""
    for candidate in tried:
        try:
            candidate = candidate if filled is None else filled(candidate)
            with _as_it_was(candidate):
                pairs = list(_answered(candidate, model))
        except Exception as error:  # what the model's own code raises for inputs that it does not know
            reason = one_line(error)
            continue
        if any(bool(t.isfinite().any()) for _, answer in pairs for t in answer if t.is_floating_point()):
            return Probe(candidate, *zip(*pairs))
        reason = "its answers are not finite"
    return reason


def probe_with(model: torch.nn.Module, inputs: Iterable[dict[str, Any]]) -> Probe:
    """The probe of a model with given inputs. Raises what its forward raises."""
    given = tuple(inputs)
    with _as_it_was(model):
        return Probe(model, given, tuple(_answer(model, one) for one in given))


def _answered(candidate: Any, model: Any) -> Iterator[tuple[dict[str, Any], list[torch.Tensor]]]:
    """Inputs with the answers to them, with padding too if the forward takes a mask."""
    given = make_inputs(model)
    types = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
    kind = next(iter(types)) if len(types) == 1 else torch.float32
    given = {name: _as(value, kind) for name, value in given.items()}
    ids = given.get("input_ids")
    if isinstance(ids, torch.Tensor) and ids.dim() == 2 and "attention_mask" not in given:
        mask = torch.ones_like(ids)
        # Padded at the end: a first token that may look at no token is left to each device's kernel.
        mask[0, ids.shape[1] - ids.shape[1] // 4 :] = 0
        padded = {**given, "attention_mask": mask}
        with contextlib.suppress(Exception):  # its forward takes no mask
            yield padded, _answer(candidate, padded)
    yield given, _answer(candidate, given)


@contextlib.contextmanager
def _as_it_was(model: torch.nn.Module) -> Iterator[None]:
    """Buffers and attributes that a forward writes to are the caller's, and the ranks begin with the same ones."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers() if not buffer.is_meta]
    with same_attributes(model):
        yield
    with torch.no_grad():
        for buffer, was in before:
            buffer.copy_(was)


def _as(value: Any, kind: torch.dtype) -> Any:
    return value.to(kind) if isinstance(value, torch.Tensor) and value.is_floating_point() else value


def _answer(model: Any, inputs: dict[str, Any]) -> list[torch.Tensor]:
    was = model.training
    with torch.no_grad():
        try:
            return [tensor.clone() for tensor in tensors_in(model.eval().forward(**copy.copy(inputs)))]
        finally:
            model.train(was)


def _error(found: torch.Tensor, want: torch.Tensor) -> float:
    """The norm of the difference over the norm of the wanted values; for exact types the share of entries that differ."""
    if found.shape != want.shape:
        return float("inf")
    if not want.is_floating_point():
        wrong = float((found != want).double().mean()) if want.numel() else 0.0
        return 0.0 if wrong <= _EXACT else 1.0
    one, other = found.double().cpu(), want.double()
    known = other.isfinite() & (other.abs() < _EXTREME)
    if not torch.equal(known, one.isfinite() & (one.abs() < _EXTREME)):
        return float("inf")
    size = float(torch.linalg.vector_norm(other[known]))
    return float(torch.linalg.vector_norm((one - other)[known])) / size if size else 0.0
