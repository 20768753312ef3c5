"""Refuse calls with arguments that no run of the proof had, if they change the model's operations.

The model runs without data with the arguments of the call. The proof holds if they add no operations. If the library's
code does not run without data, as for videos, the call is not refused, and a warning is logged.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from modular_converter.parallel.choice.skeleton import Skeleton
from modular_converter.parallel.choice.small_instances import is_of_the_library
from modular_converter.parallel.choice.trials import inputs_without_data, kinds_of_call
from modular_converter.parallel.errors import ApplyError, TraceError, one_line
from modular_converter.parallel.solve.operators import views
from modular_converter.parallel.tiny.arguments import ASKS_FOR, keywords
from modular_converter.parallel.trace.layer_kinds import Kind
from modular_converter.parallel.trace.record import tensors_in


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
