"""Trials of a user's own model, before the hand-over of its weights and at calls with arguments that no run of the proof had.

A small instance, built from classes and a configuration, lacks layers that were replaced later, the values of weights, and
the types in use: one layer of each kind runs here and on the ranks, on the same inputs.

At a call, the model runs without data with its arguments. The proof holds if they add no operations. If the library's
code does not run without data, as for videos, the call is not refused, and a warning is logged.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from modular_converter.parallel.choice.skeleton import Skeleton
from modular_converter.parallel.choice.small_instances import is_of_the_library
from modular_converter.parallel.choice.trials import (
    inputs_with_data,
    inputs_without_data,
    kinds_of,
    kinds_of_call,
    of_type,
    one_of_each_kind,
)
from modular_converter.parallel.errors import ApplyError, TraceError, one_line
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.subject import with_mask
from modular_converter.parallel.solve.operators import views
from modular_converter.parallel.tiny.arguments import ASKS_FOR, keywords
from modular_converter.parallel.tiny.build import SEED, seed_cpu
from modular_converter.parallel.trace.layer_kinds import Kind
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


logger = logging.getLogger(__name__)
# Operations that only unpack an argument, if they are outside of the layers.
_TAKES_APART = frozenset(views.TABLE.operators)
# Keys in a model's ``__dict__``: of its ``Unproven``, and of a mark while ``generate`` runs.
UNPROVEN, _GENERATES = "_unproven_arguments", "_generates"


@dataclass(frozen=True)
class Unproven:
    """The arguments without a proof, and the model without its weights.

    Attributes:
        known: sets of arguments of earlier calls that add no operations.
    """

    names: frozenset[str]
    skeleton: Skeleton
    known: set[frozenset[str]] = field(default_factory=set)

    def refuse(self, model: Any, given: Mapping[str, Any], unknown: Iterable[str] = ()) -> None:
        """Raise ``ApplyError`` if a call with these arguments runs other operations than the proof.

        Args:
            unknown: names that only the forward's ``**kwargs`` take: no run of the proof can have had them.
        """
        without = self.names.union(unknown)
        names = frozenset(name for name in without & given.keys() if _is_given(given[name]))
        if not names or names in self.known:
            return
        try:
            reason = self._new_operation(given, without)
        except Exception as error:  # any error of the model's own code without data
            reason = f"it cannot be tried without data ({one_line(error)})"
            if is_of_the_library(model):
                logger.warning(
                    "%s was given %s, which no run of the proof had, and %s: compare an answer with the answer of one "
                    "device",
                    type(model).__name__,
                    ", ".join(sorted(names)),
                    reason,
                )
                reason = ""
        if reason:
            raise ApplyError(
                f"{type(model).__name__} was given {', '.join(sorted(names))}, which no run of the proof had, and {reason}, so "
                "the answer may be wrong: leave it out, or use a plan without this check: parallelize(model, plan=...), "
                "such as `modular-plan derive` prints"
            )
        self.known.add(names)

    def _new_operation(self, given: Mapping[str, Any], without: frozenset[str]) -> str:
        """An operation that only the given arguments cause, in words; empty if there is none."""
        found, usual = kinds_of_call(self.skeleton, given), self._usual(given, without)
        for path, kind in found.items():
            more = {fact for fact in kind - usual.get(path, frozenset()) if fact[0] == "operation"}
            more = more if path else {fact for fact in more if fact[1] not in _TAKES_APART}
            if more:
                _, name, inner, _ = min(more)
                place = ".".join(filter(None, (path, inner)))
                return f"with it {place or 'the model'} runs other operations, such as {name}"
        return ""

    def _usual(self, given: Mapping[str, Any], without: frozenset[str]) -> dict[str, Kind]:
        """The kinds of a run without the arguments; of likely inputs, if the model needs one of the arguments."""
        try:
            return kinds_of_call(self.skeleton, {name: given[name] for name in given.keys() - without})
        except TraceError:
            return kinds_of_call(self.skeleton, inputs_without_data(self.skeleton, None))


def _is_given(value: Any) -> bool:
    return isinstance(value, (bool, int, float, str)) or bool(tensors_in(value))


def refuse_unproven(model: Any, own: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise ``ApplyError`` if a call of ``own``, a method of the model's class, runs other operations than the proof."""
    unproven: Unproven | None = model.__dict__.get(UNPROVEN)
    if unproven is None or _GENERATES in model.__dict__:
        return
    taken, given = _parameters(type(model).forward), dict(kwargs)
    if args:
        given |= inspect.signature(own).bind_partial(model, *args).arguments
    if "inputs" in given and "inputs" not in taken:  # of generate
        given[getattr(model, "main_input_name", "input_ids")] = given.pop("inputs")
    usual = {name: value for name, value in given.items() if name in taken and not _is_usual(value, taken[name])}
    more = _keywords(own, taken, given)
    unproven.refuse(model, {name: value for name, value in usual.items() if name != "self"} | more, more)


@functools.lru_cache(maxsize=64)
def _parameters(method: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return {**keywords(method), **inspect.signature(method).parameters}


def _keywords(
    own: Callable[..., Any], taken: Mapping[str, inspect.Parameter], given: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments that reach the forward through its ``**kwargs``, without the options of ``generate``."""
    if not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken.values()):
        return {}
    options = _parameters(own)
    found = {
        name: value for name, value in given.items() if not (name in taken or name in options or ASKS_FOR.match(name))
    }
    return {name: value for name, value in found.items() if own.__name__ == "forward" or tensors_in(value)}


def _is_usual(value: Any, parameter: inspect.Parameter) -> bool:
    return value is None or isinstance(value, (bool, int, float, str)) and value == parameter.default


def refusing_unproven(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    """A ``forward`` or ``generate`` that refuses such arguments, except in the calls that ``generate`` makes itself."""

    @functools.wraps(own)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not torch.compiler.is_compiling():
            refuse_unproven(self, own, args, kwargs)
        return own(self, *args, **kwargs)

    @functools.wraps(own)
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        refuse_unproven(self, own, args, kwargs)
        was = self.__dict__.get(_GENERATES)
        self.__dict__[_GENERATES] = True
        try:
            return own(self, *args, **kwargs)
        finally:
            if was is None:
                del self.__dict__[_GENERATES]

    return generate if name == "generate" else forward
