"""Uses of a model beside the run that is traced: state handed back, other lengths and arguments, other sides of branches."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy
import torch
from torch.overrides import TorchFunctionMode

from modular_converter.parallel.errors import BuildError, TraceError
from modular_converter.parallel.tiny.arguments import given_arguments
from modular_converter.parallel.tiny.build import Small, Target, copy_for_training, copy_of, fresh, seed_cpu
from modular_converter.parallel.tiny.fields import config_fields
from modular_converter.parallel.torch_private import TorchDispatchMode
from modular_converter.parallel.trace.graph import Comparison, Source, Trace
from modular_converter.parallel.trace.layer_kinds import beyond_numbers, numbers_at_positions, other_length
from modular_converter.parallel.trace.record import numbers_in_caller, record, site_of_call, tensors_in
from modular_converter.parallel.trace.unchanged import unchanged


def arguments_of_use(small: Small) -> set[str]:
    """The names of the arguments of the model's own forward in a use that has run."""
    within: set[str] = small.model.__dict__.get("_given", set())
    return within | {name for name, value in small.inputs.items() if value is not None}


class _Names(set[str]):
    """Names that remain when a model is restored after a run: a class of this package is skipped."""


class _InUse(torch.nn.Module):
    """Put before a model's own class: its forward is a use, which calls the model's own forward."""

    _use: Callable[..., Any]
    _given: _Names

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._use(self._own, *args, **kwargs)

    def _own(self, *args: Any, **kwargs: Any) -> Any:
        self._given.update(name for name, value in kwargs.items() if value is not None)
        return super().forward(*args, **kwargs)


def within_use(small: Small, use: Callable[..., Any]) -> Small:
    """A copy of the instance with the forward ``use``, which gets the model's own forward and the arguments."""
    model = copy_of(small.model)
    own = type(model)
    body = {"__module__": own.__module__, "__qualname__": own.__qualname__}
    model.__class__ = type(own.__name__, (_InUse, own), body)
    model.__dict__.update(_use=use, _given=_Names())
    return dataclasses.replace(small, model=model)


@dataclasses.dataclass(frozen=True)
class _GivenBack:
    """A forward that returns its state, and a forward of the last token with this state."""

    ids: str
    takes: frozenset[str]

    def __call__(self, forward: Callable[..., Any], **given: Any) -> Any:
        ids = given[self.ids]
        first = forward(**{**given, self.ids: ids[:, :-1], "use_cache": True})
        fields = first.items() if isinstance(first, Mapping) else ()
        state = {n: v for n, v in fields if n in self.takes and v is not None and not isinstance(v, torch.Tensor)}
        if not state:
            raise BuildError("its forward returns no state")
        second = forward(**{**given, self.ids: ids[:, -1:], "use_cache": True, **state})
        return [found for result in (first, second) for name, found in result.items() if name not in state]


def continued(small: Small) -> Small | None:
    """The instance in a forward that returns its state and one of the last token with it; None if there is no state."""
    taken = frozenset(inspect.signature(small.model.forward).parameters)
    ids = next((name for name in ("decoder_input_ids", "input_ids") if name in small.inputs), None)
    return within_use(small, _GivenBack(ids, taken)) if ids is not None and "use_cache" in taken else None


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
        answers: place -> the answers there, as text.
        written: place where a number is read -> the numbers in the code of the function.
        turned: the place where answers are reversed; empty for none.
        far: replaces the numbers at the turned place; None to reverse their comparisons.
    """

    def __init__(self, turned: str = "", far: int | float | None = None) -> None:
        super().__init__()
        self.turned, self.far, self.met = turned, far, dict[str, bool]()
        self.asked = self.compared = 0
        self.sized: dict[int, torch.Tensor] = {}
        self.answers: dict[str, set[str]] = {}
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
        self.answers.setdefault(site, set()).add(str(truth))
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
        return sides.answers.get(site, set())
    return set()


# The longest sequence, since longer sequences would take too much time, and the longest with several rows.
_LONGEST, _LONG = 1100, 64
_MOST_LENGTHS, _MOST_BRANCHES = 3, 8
_MOST_ROWS = 64
_MOST_NUMBERS = 1 << 22
# The longest length of a proof that compares gradients.
_LONGER = 31
_POSITIONS = re.compile(r"position_embeddings|^n_ctx$|^n_positions$|max_.*(position|length)|context_length|max_seq")


@dataclasses.dataclass(frozen=True)
class Use:
    """A use of a model.

    Attributes:
        description: to follow "with".
        small: a small instance whose forward is this use.
        learns: whether gradients are compared, too.
    """

    description: str
    small: Small
    learns: bool = False


def uses_of(target: Target, small: Small, overrides: Mapping[str, Any]) -> list[Use]:
    """The uses, without the plain forward, in which a small instance runs and gives the same numbers twice."""
    found = [use for use in _candidates(target, small, overrides) if _runs(use.small)]
    for name, forms in given_arguments(small):
        runs = next((form for form in forms if _runs(form, bounded=True)), None)
        if runs is not None:
            value = runs.inputs.get(name)
            found.append(Use(f"{name}={value}" if isinstance(value, (bool, int, float)) else name, runs))
    return found + list(_other_sides(small))


def untried_branches(small: Small, tried: Iterable[str]) -> list[str]:
    """The other sides of branches on data, in words, that were not tried: they do not run, or there were too many."""
    known = set(tried)
    return [str(side) for side in other_sides(small) if str(side) not in known and not side.guessed]


def _other_sides(small: Small) -> Iterator[Use]:
    """Other sides of branches on data: with reversed answers, or with weights for which the answers differ."""
    for side in other_sides(small)[:_MOST_BRANCHES]:
        turned = within_use(small, side)
        if _runs(turned):
            yield Use(str(side), turned)
        elif (other := with_other_weights(small, side)) is not None and _runs(other):
            yield Use(str(side), other)


def _candidates(target: Target, small: Small, overrides: Mapping[str, Any]) -> Iterator[Use]:
    yield from _lengths(target, small, overrides)
    if (padded := _padded(small)) is not None:
        yield Use("padding", padded)
    if (state_kept := continued(small)) is not None:
        yield Use("state of an earlier call", state_kept)
    yield Use("training", dataclasses.replace(small, model=copy_for_training(small.model)), learns=True)
    yield from _embedded(small)


class _Bounded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses large tensors: a guessed shape of an argument may lead to 100,000 patches of 16 (videomae, 17 GB)."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **kwargs)
        if any(tensor.numel() > _MOST_NUMBERS for tensor in tensors_in(result)):
            raise BuildError("more numbers than a small instance has")
        return result


def _runs(small: Small, bounded: bool = False) -> bool:
    """Whether a copy of the model runs twice with the same finite numbers; a copy, since a model may keep its inputs."""
    try:
        model = copy_of(small.model)
        with torch.no_grad(), _Bounded() if bounded else contextlib.nullcontext():  # type: ignore[no-untyped-call]
            runs = []
            for _ in range(2):
                seed_cpu(11)
                with unchanged(model):
                    runs.append(tensors_in(model(**small.inputs)))
    except Exception:  # the model does not support this use
        return False
    same = len(runs[0]) == len(runs[1]) and all(
        torch.equal(a.nan_to_num(0.0), b.nan_to_num(0.0)) for a, b in zip(*runs)
    )
    return same and any(bool(t.isfinite().all()) for t in runs[0] if t.is_floating_point())


def _lengths(target: Target, small: Small, overrides: Mapping[str, Any]) -> Iterator[Use]:
    """One token, and the lengths and numbers of rows for which a comparison in the code has another result."""
    ids = small.inputs.get("input_ids")
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2:
        return
    yield Use("one token", dataclasses.replace(small, inputs=with_length(small.inputs, 1)))
    try:
        trace = record(_anew(target, small, overrides), small.inputs, small.name)
    except TraceError:
        return
    rows, length = ids.shape
    for other in lengths_named(trace, length):
        model = _with_room(target, small, overrides, other)
        inputs = with_length(small.inputs, other)
        yield Use(f"{other} tokens", dataclasses.replace(small, model=model, inputs=inputs))
    for other in _otherwise(trace, rows, _MOST_ROWS)[:_MOST_LENGTHS]:
        inputs = {name: _with_rows(value, rows, other) for name, value in small.inputs.items()}
        yield Use(f"{other} rows" if other > 1 else "one row", dataclasses.replace(small, inputs=inputs))


def lengths_named(trace: Trace, usual: int) -> list[int]:
    """Other numbers of ids, more than one: those for which a comparison has another result, and one beyond all numbers."""
    others = [n for n in _otherwise(trace, usual, _LONGEST) if n > 1][:_MOST_LENGTHS]
    beyond = beyond_numbers(numbers_at_positions(trace), max(usual, *others, _LONGER), _LONGEST)
    return [*others, *([] if beyond is None else [beyond])]


def with_length(inputs: Mapping[str, Any], length: int) -> dict[str, Any]:
    """The same inputs with ids of another length; if it is long, with a single row."""
    ids = {n: v for n, v in inputs.items() if isinstance(v, torch.Tensor) and n in ("input_ids", "decoder_input_ids")}
    single = length > _LONG and len(ids) == sum(isinstance(value, torch.Tensor) for value in inputs.values())
    longer = {}
    for name, value in ids.items():
        rows = value[: 1 if single else None]
        longer[name] = torch.cat([rows] * -(-length // rows.shape[1]), dim=1)[:, :length]
    return {**inputs, **longer}


def _with_rows(value: Any, rows: int, other: int) -> Any:
    """A tensor of ``rows`` rows with ``other`` rows instead; other values unchanged."""
    if not isinstance(value, torch.Tensor) or not value.dim() or value.shape[0] != rows:
        return value
    return value.repeat(-(-other // rows), *[1] * (value.dim() - 1))[:other]


def _otherwise(trace: Trace, usual: int, most: int) -> list[int]:
    """Other lengths for dimensions of the usual length: the smallest that changes each comparison's result."""
    found = (other_length(compared, usual, most) for compared in {_anywhere(one) for one in trace.compared})
    return sorted({other for other in found if other is not None} - {usual})


def _anywhere(compared: Comparison) -> Comparison:
    """The comparison without the places of its sources, since layers and loops repeat it."""

    def bare(source: Source) -> Source:
        return Source(source.kind, source.value, args=tuple(map(bare, source.args)))

    return Comparison(compared.operator, bare(compared.left), bare(compared.right))


def _with_room(target: Target, small: Small, overrides: Mapping[str, Any], length: int) -> torch.nn.Module:
    """The model with enough positions for a length, if its configuration limits positions."""
    if not target.config_class:
        return small.model
    config: Any = small.model.config
    values = {
        field.name: getattr(config, field.name, None)
        for field in config_fields(config)
        if _POSITIONS.search(field.name)
    }
    more = {name: 2 * length for name, value in values.items() if type(value) is int and value < 2 * length}
    try:
        return _anew(target, small, {**overrides, **more})
    except Exception:  # other sizes depend on the number of positions
        return _anew(target, small, overrides)


def _anew(target: Target, small: Small, overrides: Mapping[str, Any]) -> torch.nn.Module:
    """The model before its first forward; of a module with example inputs, which no configuration makes, a copy."""
    return fresh(target, overrides, small.strategy) if target.config_class else copy_of(small.model)


def _padded(small: Small) -> Small | None:
    """The first row padded on the left, the last one on the right."""
    ids, taken = small.inputs.get("input_ids"), inspect.signature(small.model.forward).parameters
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or "attention_mask" not in taken:
        return None
    mask = torch.ones_like(ids)
    mask[0, : ids.shape[1] // 4] = 0
    mask[-1, -(ids.shape[1] // 4) :] = 0
    return dataclasses.replace(small, inputs={**small.inputs, "attention_mask": mask})


def _width(model: Any) -> int:
    """The width of the embeddings of ids; 0 if it is unknown."""
    try:
        return int(model.get_input_embeddings().weight.shape[1])
    except Exception:  # the model lacks the method, or its own method fails
        return int(getattr(getattr(model, "config", None), "hidden_size", 0) or 0)


def _embedded(small: Small) -> Iterator[Use]:
    """Embeddings in place of ids."""
    taken = inspect.signature(small.model.forward).parameters
    ids, width = small.inputs.get("input_ids"), _width(small.model)
    if "inputs_embeds" in taken and isinstance(ids, torch.Tensor) and width:
        rest = {name: value for name, value in small.inputs.items() if name != "input_ids"}
        drawn = torch.randn(*ids.shape, width, generator=torch.Generator().manual_seed(5))
        yield Use("embeddings in place of ids", dataclasses.replace(small, inputs={**rest, "inputs_embeds": drawn}))
