"""Uses of a small instance beside the plain forward: lengths, padding, returned state, training, other sides of branches.

A plan that is right in one use may be wrong in another.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from modular_converter.parallel.errors import BuildError, TraceError
from modular_converter.parallel.tiny.arguments import given_arguments
from modular_converter.parallel.tiny.branches import other_sides, with_other_weights
from modular_converter.parallel.tiny.build import Small, Target, fresh
from modular_converter.parallel.tiny.copies import copy_of
from modular_converter.parallel.tiny.dropout_rates import dropout_rates
from modular_converter.parallel.tiny.fields import config_fields
from modular_converter.parallel.tiny.other_forwards import continued, within_use
from modular_converter.parallel.tiny.seed import seed_cpu
from modular_converter.parallel.torch_private import TorchDispatchMode
from modular_converter.parallel.trace.graph import Comparison, Source, Trace
from modular_converter.parallel.trace.lengths import beyond_numbers, numbers_at_positions, other_length
from modular_converter.parallel.trace.record import record, tensors_in
from modular_converter.parallel.trace.unchanged import unchanged


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
        said: its description, to follow "with".
        small: a small instance whose forward is this use.
        learns: whether gradients are compared, too.
    """

    said: str
    small: Small
    learns: bool = False


def uses_of(target: Target, small: Small, overrides: Mapping[str, Any]) -> list[Use]:
    """The uses, without the plain forward, in which a small instance runs and gives the same numbers twice."""
    found = [use for use in _candidates(target, small, overrides) if _runs(use.small)]
    for name, forms in given_arguments(small):
        runs = next((form for form in forms if _runs(form, bounded=True)), None)
        found += [] if runs is None else [Use(_said(name, runs.inputs.get(name)), runs)]
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


def _said(name: str, value: Any) -> str:
    return f"{name}={value}" if isinstance(value, (bool, int, float)) else name


def _candidates(target: Target, small: Small, overrides: Mapping[str, Any]) -> Iterator[Use]:
    yield from _lengths(target, small, overrides)
    if (padded := _padded(small)) is not None:
        yield Use("padding", padded)
    if (state_kept := continued(small)) is not None:
        yield Use("state of an earlier call", state_kept)
    yield Use("training", _training(small), learns=True)
    yield from _embedded(small)


class _Bounded(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Refuses large tensors: a guessed shape of an argument may lead to 100,000 patches of 16 (videomae, 17 GB)."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
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
        trace = record(fresh(target, overrides, small.strategy), small.inputs, small.name)
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
    config: Any = small.model.config
    values = {
        field.name: getattr(config, field.name, None)
        for field in config_fields(config)
        if _POSITIONS.search(field.name)
    }
    more = {name: 2 * length for name, value in values.items() if type(value) is int and value < 2 * length}
    try:
        return fresh(target, {**overrides, **more}, small.strategy)
    except Exception:  # other sizes depend on the number of positions
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


def _training(small: Small) -> Small:
    model = copy_of(small.model)
    for module in model.modules():
        for name in dropout_rates(module):
            setattr(module, name, 0.0)
    return dataclasses.replace(small, model=model.train())
