"""Optional arguments of a forward, with values of several shapes to try; the first values with which it runs are used."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_args

import torch

from modular_converter.parallel.tiny.build import Small
from modular_converter.parallel.tiny.shrink import BATCH
from modular_converter.parallel.trace.record import tensors_in
from modular_converter.parallel.trace.unchanged import unchanged


# Arguments that ask for more outputs: calls of a sharded model compare these with the whole model's.
ASKS_FOR = re.compile(r"return_|output_|use_cache$")
# Arguments with uses of their own. The mask has one, too, if there are ids.
CACHES = ("cache", "past_key_values", "cache_params")
"""The arguments that take a cache: `cache` since transformers 5.24, which understands the older name, too."""
_KNOWN = ("input_ids", "inputs_embeds", *CACHES)
_WHOLE_NUMBERS = re.compile(r"ids?$|labels?|mask|position|index|type|_pos$")
_MOST_SHAPES = 16
# The value for a number without any hint.
_SOME = 3


def optional_arguments(model: torch.nn.Module) -> dict[str, inspect.Parameter]:
    """The optional arguments of a model's forward, by name, without those that only ask for outputs."""
    taken = inspect.signature(model.forward).parameters.items()
    empty = inspect.Parameter.empty
    named = {name: one for name, one in taken if one.default is not empty and not ASKS_FOR.match(name)}
    return {**keywords(model.forward), **named}


def keywords(forward: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The arguments in a forward's ``**kwargs: Unpack[...]``, by name, without those that only ask for outputs.

    Of ``**kwargs`` without names beside labels, the number of labels: transformers' ``Trainer`` gives it to any such forward.
    """
    taken = inspect.signature(forward).parameters
    with contextlib.suppress(Exception):  # annotations may have names that do not exist at run time
        taken = inspect.signature(forward, eval_str=True).parameters
    annotation = next((one.annotation for one in taken.values() if one.kind is inspect.Parameter.VAR_KEYWORD), None)
    named = {
        name: kind for table in get_args(annotation) for name, kind in getattr(table, "__annotations__", {}).items()
    }
    if annotation is inspect.Parameter.empty and "labels" in taken:
        named = {"num_items_in_batch": torch.Tensor | None}
    return {
        name: inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in named.items()
        if name not in taken and not ASKS_FOR.match(name)
    }


def given_arguments(small: Small) -> Iterator[tuple[str, Iterator[Small]]]:
    """Name of each optional argument that the inputs lack -> small instances with values of several forms for it."""
    together = keywords(small.model.forward)
    if together:
        first, *more = together
        yield f"{first} and {len(more)} more keywords" if more else first, _all_of(small, together)
    for name, parameter in optional_arguments(small.model).items():
        if name in together:
            continue
        padded = name == "attention_mask" and "input_ids" in small.inputs
        if name not in (*small.inputs, *_KNOWN) and not padded:
            yield name, _with(small, name, parameter)


def _all_of(small: Small, parameters: Mapping[str, inspect.Parameter]) -> Iterator[Small]:
    """Small instances with arguments that belong together, such as packed sequences; with labels, which some need."""
    ids, taken = small.inputs.get("input_ids"), inspect.signature(small.model.forward).parameters
    labels = {"labels": ids} if "labels" in taken and isinstance(ids, torch.Tensor) else {}
    for count, shape in itertools.product((None, 1), ((), (BATCH,))):
        some = list(parameters.items())[:count]
        given = {name: next(_plain_values(one), torch.full(shape, _SOME)) for name, one in some}
        yield from (dataclasses.replace(small, inputs={**small.inputs, **more, **given}) for more in (labels, {}))


def _with(small: Small, name: str, parameter: inspect.Parameter) -> Iterator[Small]:
    for value in _values(small, name, parameter):
        yield dataclasses.replace(small, inputs={**small.inputs, name: value})


def _values(small: Small, name: str, parameter: inspect.Parameter) -> Iterator[Any]:
    yield from _plain_values(parameter)
    annotation = str(parameter.annotation)
    if parameter.default is None and ("Tensor" in annotation or parameter.annotation is inspect.Parameter.empty):
        yield from _tensors(small, name)


def _plain_values(parameter: inspect.Parameter) -> Iterator[bool | int | float]:
    usual, annotation = parameter.default, str(parameter.annotation)
    if isinstance(usual, bool):
        yield not usual
    elif isinstance(usual, (int, float)):
        yield usual + 1
    elif usual is None and "Tensor" not in annotation:
        if "bool" in annotation:
            yield True
        elif "int" in annotation:
            yield _SOME


def _tensors(small: Small, name: str) -> Iterator[Any]:
    """Tensors in the shapes of inputs and outputs and of their first dimensions; then lists, one tensor for each layer."""
    generator = torch.Generator().manual_seed(5)

    def whole(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randint(0, 2, shape, generator=generator)

    def floating(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    shapes = list(dict.fromkeys(_shapes(small)))[:_MOST_SHAPES]
    if name.endswith("outputs"):  # of another module: models take the first of them
        yield from ([floating(shape)] for shape in shapes)
        return
    makers = (whole, floating) if _WHOLE_NUMBERS.search(name) else (floating, whole)
    for make in makers:
        yield from map(make, shapes)
    if _WHOLE_NUMBERS.search(name):
        yield from (whole(shape).bool() for shape in shapes)
    if name == "labels":  # of detectors
        yield [
            {"class_labels": torch.zeros(1, dtype=torch.long), "boxes": torch.full((1, 4), 0.4)} for _ in range(BATCH)
        ]
    layers = max((len(m) for m in small.model.modules() if isinstance(m, torch.nn.ModuleList)), default=1)
    for shape in shapes:
        yield [floating(shape) for _ in range(layers)]


def _shapes(small: Small) -> Iterator[tuple[int, ...]]:
    with unchanged(small.model), torch.no_grad():
        outputs = tensors_in(small.model(**small.inputs))
    known = [tuple(tensor.shape) for tensor in (*tensors_in(dict(small.inputs)), *outputs)]
    yield from known
    for shape in known:
        yield shape[-1:]
        yield from (shape[:count] for count in range(1, len(shape)))
    for rows, length, *_ in (shape for shape in known if len(shape) > 1):
        yield from ((rows, 1, length, length), (rows, length, length), (rows, length - 1), (length,))
    yield from ((1,), ())
