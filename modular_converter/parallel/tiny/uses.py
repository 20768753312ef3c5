"""Other uses of a small instance than one plain forward: lengths, padding, state that is given back, training, and the
other side of a branch on data. A plan that holds in one use may break in another.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from modular_converter.parallel.errors import BuildError, TraceError
from modular_converter.parallel.tiny.build import Small, Target, fresh
from modular_converter.parallel.tiny.dropout_rates import dropout_rates
from modular_converter.parallel.tiny.fields import config_fields
from modular_converter.parallel.tiny.seed import seed_cpu
from modular_converter.parallel.trace.graph import Source, Trace
from modular_converter.parallel.trace.record import record, tensors_in


# Longer sequences would cost more than they show.
_LONGEST, _LONG = 1100, 64
_MOST_LENGTHS, _MOST_BRANCHES = 3, 3
_POSITIONS = re.compile(r"position_embeddings|^n_ctx$|^n_positions$|max_.*(position|length)|context_length|max_seq")


@dataclasses.dataclass(frozen=True)
class Use:
    """One use.

    Attributes:
        said: how to say it: ``with …``.
        small: a small instance whose forward is this use.
        learns: whether gradients count too.
    """

    said: str
    small: Small
    learns: bool = False


def uses_of(target: Target, small: Small, overrides: Mapping[str, Any]) -> list[Use]:
    """The uses in which a small instance runs, and gives the same numbers twice; the plain forward is not among them."""
    return [use for use in _candidates(target, small, overrides) if _runs(use.small)]


def _candidates(target: Target, small: Small, overrides: Mapping[str, Any]) -> Iterator[Use]:
    yield from _lengths(target, small, overrides)
    if (padded := _padded(small)) is not None:
        yield Use("padding", padded)
    if (continued := _continued(small)) is not None:
        yield Use("state of an earlier call", continued)
    yield Use("training", _training(small), learns=True)
    for site in _branches(small)[:_MOST_BRANCHES]:
        place = site.rpartition("/")[2]
        yield Use(f"the other side of the branch on data in {place}", _in_use(small, _OtherSide(site)))


def _runs(small: Small) -> bool:
    try:
        with torch.no_grad():
            runs = []
            for _ in range(2):
                seed_cpu(11)
                runs.append(tensors_in(small.model(**small.inputs)))
    except Exception:  # a use that is not the model's
        return False
    same = len(runs[0]) == len(runs[1]) and all(
        torch.equal(a.nan_to_num(0.0), b.nan_to_num(0.0)) for a, b in zip(*runs)
    )
    return same and any(bool(t.isfinite().all()) for t in runs[0] if t.is_floating_point())


def _lengths(target: Target, small: Small, overrides: Mapping[str, Any]) -> Iterator[Use]:
    """One token, and lengths on the other side of each number that the code compares a length with."""
    ids = small.inputs.get("input_ids")
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2:
        return
    yield Use("one token", dataclasses.replace(small, inputs=_with_length(small.inputs, 1)))
    try:
        trace = record(fresh(target, overrides, small.strategy), small.inputs, small.name)
    except TraceError:
        return
    for length in _beyond(trace, ids.shape[1])[:_MOST_LENGTHS]:
        model = _with_room(target, small, overrides, length)
        inputs = _with_length(small.inputs, length)
        yield Use(f"{length} tokens", dataclasses.replace(small, model=model, inputs=inputs))


def _with_length(inputs: Mapping[str, Any], length: int) -> dict[str, Any]:
    """The same inputs with ids of another length; a single row of very many."""
    ids = {n: v for n, v in inputs.items() if isinstance(v, torch.Tensor) and n in ("input_ids", "decoder_input_ids")}
    single = length > _LONG and len(ids) == sum(isinstance(value, torch.Tensor) for value in inputs.values())
    longer = {n: v[: 1 if single else None].repeat(1, -(-length // v.shape[1]))[:, :length] for n, v in ids.items()}
    return {**inputs, **longer}


def _beyond(trace: Trace, length: int) -> list[int]:
    """The lengths for which a comparison of a tensor's length with another number comes out otherwise."""
    found = set()
    for left, right in trace.compared:
        sides = [side for side in (left, right) if not _has_length(side)]
        if len(sides) == 1:
            limit = sides[0].value
            found.add(limit + 1 if limit >= length else limit)
    return sorted(number for number in found if 1 < number <= _LONGEST and number != length)


def _has_length(source: Source) -> bool:
    return source.kind == "shape" or any(map(_has_length, source.args))


def _with_room(target: Target, small: Small, overrides: Mapping[str, Any], length: int) -> torch.nn.Module:
    """The model with positions for a length, if its configuration has a number of positions that is smaller."""
    config: Any = small.model.config
    values = {
        field.name: getattr(config, field.name, None)
        for field in config_fields(config)
        if _POSITIONS.search(field.name)
    }
    more = {name: 2 * length for name, value in values.items() if type(value) is int and value < 2 * length}
    try:
        return fresh(target, {**overrides, **more}, small.strategy)
    except Exception:  # positions that other sizes depend on
        return fresh(target, overrides, small.strategy)


def _padded(small: Small) -> Small | None:
    """The first row padded on the left, the last one on the right."""
    ids, taken = small.inputs.get("input_ids"), inspect.signature(small.model.forward).parameters
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or "attention_mask" not in taken:
        return None
    mask = torch.ones_like(ids)
    mask[0, : ids.shape[1] // 4] = 0
    mask[-1, -(ids.shape[1] // 4) :] = 0
    return dataclasses.replace(small, inputs={**small.inputs, "attention_mask": mask})


def _training(small: Small) -> Small:
    model = copy.deepcopy(small.model)
    for module in model.modules():
        for name in dropout_rates(module):
            setattr(module, name, 0.0)
    return dataclasses.replace(small, model=model.train())


class _InUse(torch.nn.Module):
    """Base before a model's own class: its forward is the model's own within a use."""

    _use: Callable[..., Any]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._use(super().forward, *args, **kwargs)


def _in_use(small: Small, use: Callable[..., Any]) -> Small:
    model = copy.deepcopy(small.model)
    own = type(model)
    body = {"__module__": own.__module__, "__qualname__": own.__qualname__}
    model.__class__ = type(own.__name__, (_InUse, own), body)
    model.__dict__["_use"] = use
    return dataclasses.replace(small, model=model)


@dataclasses.dataclass(frozen=True)
class _GivenBack:
    """A forward that keeps state, and one of the last token that gets this state."""

    ids: str
    takes: frozenset[str]

    def __call__(self, forward: Callable[..., Any], **given: Any) -> Any:
        ids = given[self.ids]
        first = forward(**{**given, self.ids: ids[:, :-1], "use_cache": True})
        fields = first.items() if isinstance(first, Mapping) else ()
        state = {n: v for n, v in fields if n in self.takes and v is not None and not isinstance(v, torch.Tensor)}
        if not state:
            raise BuildError("its forward gives no state back")
        second = forward(**{**given, self.ids: ids[:, -1:], "use_cache": True, **state})
        return [found for result in (first, second) for name, found in result.items() if name not in state]


def _continued(small: Small) -> Small | None:
    taken = frozenset(inspect.signature(small.model.forward).parameters)
    ids = next((name for name in ("decoder_input_ids", "input_ids") if name in small.inputs), None)
    return _in_use(small, _GivenBack(ids, taken)) if ids is not None and "use_cache" in taken else None


class _Sides(TorchFunctionMode):
    """Notes where code asks a tensor for a truth or a number; at one place, the answers lead to the other side."""

    def __init__(self, files: frozenset[str], turned: str = "") -> None:
        super().__init__()
        self.files, self.turned, self.met = files, turned, dict[str, None]()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") not in ("__bool__", "item", "__float__"):
            return result
        site = self._site()
        if site is None:
            return result
        self.met[site] = None
        if site != self.turned:
            return result
        return _Turned(result) if isinstance(result, float) else not result if isinstance(result, bool) else result

    def _site(self) -> str | None:
        """The file and line of the model's own code that asks."""
        frame: Any = sys._getframe(2)
        while frame is not None and "/torch/" in frame.f_code.co_filename:
            frame = frame.f_back
        found = frame is not None and frame.f_code.co_filename in self.files
        return f"{frame.f_code.co_filename}:{frame.f_lineno}" if found else None


class _Turned(float):
    """A number whose comparisons come out the other way."""

    def __lt__(self, other: float) -> bool:
        return not float(self) < other

    def __le__(self, other: float) -> bool:
        return not float(self) <= other

    def __gt__(self, other: float) -> bool:
        return not float(self) > other

    def __ge__(self, other: float) -> bool:
        return not float(self) >= other


@dataclasses.dataclass(frozen=True)
class _OtherSide:
    """A forward in which one branch on data goes the other way."""

    site: str

    def __call__(self, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        with _Sides(frozenset((self.site.rpartition(":")[0],)), self.site):
            return forward(*args, **kwargs)


def _branches(small: Small) -> list[str]:
    kinds = {type(module) for module in small.model.modules()}
    modules = (sys.modules.get(kind.__module__) for kind in kinds if not kind.__module__.startswith("torch."))
    sides = _Sides(frozenset(str(getattr(module, "__file__", "")) for module in modules))
    with torch.no_grad(), sides:
        small.model(**small.inputs)
    return list(sides.met)
