"""Branches on data: their places in a model's code, and a forward that takes the other side at one of them.

Code may ask a tensor for a truth value, or compare a number, a list, an array of numpy or a length that it has read
from a tensor.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from typing import Any

import numpy
import torch
from torch.overrides import TorchFunctionMode

from modular_converter.parallel.errors import BuildError
from modular_converter.parallel.tiny.build import Small
from modular_converter.parallel.tiny.copies import copy_of
from modular_converter.parallel.trace.call_names import numbers_in_caller, site_of_call
from modular_converter.parallel.trace.unchanged import unchanged


# Limits, since a loop that waits for data may never end with reversed answers: questions to tensors at the place, and
# comparisons of numbers, which are many when code sorts a list.
_MOST_ASKED, _MOST_COMPARED = 1_000, 100_000
# Numbers that are tried of one function: functions that compare values from tensors seldom have more.
_MOST_WRITTEN = 3
# Replaces numbers whose comparisons are not seen, such as ``float(tensor)``.
_FAR = 10_000
# Factors of all weights, for models whose other side does not run with weights of the usual size.
_FACTORS = (100.0, 0.01, 10_000.0)
_TRUTHS = ("__bool__", "__contains__", "equal", "allclose", "is_nonzero")
_VALUES = ("item", "__int__", "__index__", "__float__", "tolist", "numpy", "__array__")
# The interpreter turns these into plain numbers, so that their comparisons are not seen.
_CASTS = ("__int__", "__index__", "__float__")
# Functions whose results have a length that depends on data, and functions that read a length.
_SIZED_BY_DATA = ("nonzero", "argwhere", "masked_select", "unique", "unique_consecutive")
_LENGTHS = ("__get__", "size", "numel", "nelement")
_COMPARISONS = ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__")
_ARITHMETIC = ("add__", "sub__", "mul__", "truediv__", "floordiv__", "mod__", "pow__")
_COMPARING_UFUNCS = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "isclose")


class _Sides(TorchFunctionMode):
    """Notes the places where code reads a truth value or a number from a tensor; at one place, it reverses the answer.

    Attributes:
        met: place -> whether its answers were seen: truth values, or comparisons of its numbers.
        said: place -> the answers there, as text.
        written: place where a number is read -> the numbers in the code of the function.
        turned: the place where answers are reversed; empty for none.
        far: replaces the numbers at the turned place; None to reverse their comparisons.
    """

    def __init__(self, turned: str = "", far: int | float | None = None) -> None:
        super().__init__()
        self.turned, self.far, self.met = turned, far, dict[str, bool]()
        self.asked = self.compared = 0
        self.sized: dict[int, torch.Tensor] = {}
        self.said: dict[str, set[str]] = {}
        self.written: dict[str, tuple[int | float, ...]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        result = func(*args, **(kwargs or {}))
        if name in _VALUES or name in _TRUTHS and isinstance(result, bool):
            made = self._asked(result)
            return type(result)(made) if name in _CASTS else made
        if _is_sized_by_data(name, args):
            parts = result if isinstance(result, tuple) else (result,)
            self.sized.update((id(part), part) for part in parts)
        elif args and id(args[0]) in self.sized:
            if name in _LENGTHS and isinstance(result, (int, torch.Size)):
                return self._asked(result)
            if (
                name == "__len__"
            ):  # the interpreter makes a plain integer of it: other lengths become 0, and 0 becomes 1
                some = self._asked(bool(result))
                return result if some == bool(result) else int(some)
        return result

    def _asked(self, result: Any) -> Any:
        site = site_of_call()
        self.asked += site == self.turned
        return self.taken(result, site)

    def answer(self, truth: Any, site: str) -> Any:
        """The truth value, or array of truth values, that the code gets at a place."""
        self.met[site] = True
        self.said.setdefault(site, set()).add(str(truth))
        if site != self.turned or self.far is not None:
            return truth
        self.compared += 1
        if self.asked > _MOST_ASKED or self.compared > _MOST_COMPARED:
            raise BuildError(f"{site} repeats without end if its condition is reversed")
        return numpy.logical_not(truth) if isinstance(truth, numpy.ndarray) else not truth

    def taken(self, value: Any, site: str) -> Any:
        """A value that remembers the place where it was read from a tensor."""
        if isinstance(value, bool) or isinstance(value, numpy.ndarray) and value.dtype == bool:
            return self.answer(value, site)
        if isinstance(value, (list, torch.Size)):
            return type(value)([self.taken(item, site) for item in value])
        self.met.setdefault(site, False)
        self.written.setdefault(site, numbers_in_caller())
        if site == self.turned and self.far is not None:
            return numpy.full_like(value, self.far) if isinstance(value, numpy.ndarray) else type(value)(self.far)
        return remember(value, self, site)


def _is_sized_by_data(name: str, args: Any) -> bool:
    if name == "where":
        return len(args) == 1
    if name != "__getitem__":
        return name in _SIZED_BY_DATA
    index = args[1] if isinstance(args[1], tuple) else (args[1],)
    return any(isinstance(item, torch.Tensor) and item.dtype == torch.bool for item in index)


def remember(value: Any, sides: _Sides, site: str) -> Any:
    """A number or array that reports its comparisons to ``sides``; other values unchanged."""
    if isinstance(value, numpy.ndarray):
        value = value.view(_Array)
    elif type(value) in _NUMBERS:
        value = _NUMBERS[type(value)](value)
    else:
        return value
    value.sides, value.site = sides, site
    return value


def _comparing(plain: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any) -> Any:
        truth = plain(self, other)
        return truth if truth is NotImplemented else self.sides.answer(truth, self.site)

    return method


def _calculating(plain: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda self, other: remember(plain(self, other), self.sides, self.site)


def _number(kind: type[Any]) -> type[Any]:
    """A subclass of ``kind`` that reports comparisons of its numbers and of numbers computed from them."""
    body: dict[str, Any] = {
        "__hash__": kind.__hash__,
        "__bool__": lambda self: self.sides.answer(kind.__bool__(self), self.site),
        "__deepcopy__": lambda self, memo: kind(self),
    }
    body |= {name: _comparing(getattr(kind, name)) for name in _COMPARISONS}
    names = (f"__{swap}{name}" for name in _ARITHMETIC for swap in ("", "r"))
    body |= {name: _calculating(getattr(kind, name)) for name in names}
    return type(kind.__name__, (kind,), body)


_NUMBERS = {kind: _number(kind) for kind in (int, float)}


class _Array(numpy.ndarray):
    """An array that reports comparisons of it and of arrays computed from it; its single numbers are arrays, too."""

    sides: _Sides | None = None
    site = ""

    def __array_finalize__(self, other: Any) -> None:
        self.sides, self.site = getattr(other, "sides", None), getattr(other, "site", "")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        known = next(item for item in (*inputs, *kwargs.get("out", ())) if isinstance(item, _Array))
        if "out" in kwargs:
            kwargs["out"] = tuple(map(_plain, kwargs["out"]))
        result = getattr(ufunc, method)(*map(_plain, inputs), **kwargs)
        if isinstance(result, tuple) or known.sides is None:
            return result
        result = numpy.asarray(result)
        seen = method == "__call__" and ufunc.__name__ in _COMPARING_UFUNCS
        return remember(known.sides.answer(result, known.site) if seen else result, known.sides, known.site)

    def item(self, *place: Any) -> Any:
        value = super().item(*place)
        return value if self.sides is None else remember(value, self.sides, self.site)


def _plain(value: Any) -> Any:
    return value.view(numpy.ndarray) if isinstance(value, _Array) else value


@dataclasses.dataclass(frozen=True)
class OtherSide:
    """A forward that takes the other side of one branch on data.

    Attributes:
        site: ``path:line`` of the branch.
        far: replaces the numbers that the code reads there; None to reverse truth values and comparisons.
        guessed: whether ``far`` is a guess, with which the code need not run.
    """

    site: str
    far: int | float | None = None
    guessed: bool = False

    def __call__(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with _Sides(self.site, self.far):
            return forward(*args, **kwargs)

    def __str__(self) -> str:
        place = self.site.rpartition("/")[2]
        if self.far is None:
            return f"the other side of the branch on data in {place}"
        words = f"{self.far} for" if self.guessed else f"{'large' if self.far > 0 else 'negative'} numbers in place of"
        return f"{words} those read in {place}"


def other_sides(small: Small) -> list[OtherSide]:
    """The other side at each place where code reads a truth value from a tensor, or compares a number from a tensor.

    A place where a number is read, but no comparison of it is seen, has two, with a large and a negative number; after all
    others come guesses for such places, with the first numbers in the code of the function.
    """
    sides = _Sides()
    with unchanged(small.model), torch.no_grad(), sides:
        small.model(**small.inputs)
    found = []
    for site, seen in sides.met.items():
        found += [OtherSide(site)] if seen else [OtherSide(site, _FAR), OtherSide(site, -_FAR)]
    unseen = [site for site, seen in sides.met.items() if not seen]
    return found + [OtherSide(site, one, True) for site in unseen for one in sides.written[site][:_MOST_WRITTEN]]


def with_other_weights(small: Small, side: OtherSide) -> Small | None:
    """The model with weights so large or small that its code takes the other side itself; None if no factor has this effect."""
    usual = _answers(small, side.site)
    for factor in _FACTORS if side.far is None else ():
        model = copy_of(small.model)
        with torch.no_grad():
            for parameter in filter(torch.is_floating_point, model.parameters()):
                parameter.mul_(factor)
        found = dataclasses.replace(small, model=model)
        if _answers(found, side.site) - usual:
            return found
    return None


def _answers(small: Small, site: str) -> set[str]:
    """The answers at a place in one run; empty if the run fails."""
    sides = _Sides()
    with contextlib.suppress(Exception), unchanged(small.model), torch.no_grad(), sides:
        small.model(**small.inputs)
        return sides.said.get(site, set())
    return set()
