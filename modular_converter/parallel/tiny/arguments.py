"""Arguments of a forward: optional ones, with the first values of several with which it runs, and the caller's examples by name.

All proofs and checks call a model by names; a forward that takes inputs by position alone gets names for them.
"""

from __future__ import annotations

import contextlib
import copyreg
import dataclasses
import functools
import inspect
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, get_args

import torch

from modular_converter.parallel.errors import ApplyError, BuildError
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


_ONE, _ALL, _NAMED = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


def inputs_by_name(module: torch.nn.Module, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Arguments of a forward, by name or in order, by their names.

    A module whose forward takes ``*xs`` or ``x, /`` becomes one of a class that takes them by the names xs_0, xs_1, … and x.

    Raises ``BuildError`` if they do not fit the forward.
    """
    kind: Any = type(module)
    name = kind.__name__
    signature = inspect.signature(module.forward)
    try:
        if isinstance(inputs, Mapping):
            return dict(inputs if _NAMED in _kinds(signature) else signature.bind(**inputs).arguments)
        given = (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)
        if {_ALL, _NAMED} <= {*_kinds(signature)}:
            signature = _handed_to(module) or signature
        if {_ONE, _ALL} & {*_kinds(signature)} and "forward" not in vars(module):
            signature.bind(*given)
            module.__class__ = _with_names(kind, len(given))
            signature = inspect.signature(module.forward)
        return dict(signature.bind(*given).arguments)
    except TypeError as error:
        raise BuildError(f"{name}: these inputs do not fit its forward: {error}") from error


def _kinds(signature: inspect.Signature) -> list[Any]:
    return [one.kind for one in signature.parameters.values()]


def _handed_to(module: torch.nn.Module) -> inspect.Signature | None:
    """The signature of the forward to which ``*args, **kwargs`` go: of the parent class, else of the only part; None if unknown."""
    parents = [vars(base)["forward"].__get__(module) for base in type(module).__mro__[1:] if "forward" in vars(base)]
    parts = [one.forward for one in module.children()]
    found = [inspect.signature(one) for one in (*parents, *(parts if len(parts) == 1 else []))]
    return next((one for one in found if one.parameters and not {_ONE, _ALL} & {*_kinds(one)}), None)


@functools.cache
def _with_names(own: Any, count: int) -> type[Any]:
    """A class like ``own``, whose forward takes by names, too, what that of ``own`` takes by position alone.

    Args:
        count: the number of all inputs in order.
    """
    signature = inspect.signature(own.forward)
    before = [one for one in signature.parameters.values() if one.kind is not _ALL]
    spread = next((one.name for one in signature.parameters.values() if one.kind is _ALL), "")
    in_order = [
        one for one in before[1:] if one.kind in ((_ONE,) if not spread else (_ONE, one.POSITIONAL_OR_KEYWORD))
    ]
    names = [one.name for one in in_order]
    while spread and spread + "_0" in signature.parameters:
        spread += "_"
    names += [f"{spread}_{number}" for number in range(count - len(names))] if spread else []

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = [*args]
        for name in names[len(args) :]:
            if name not in kwargs:
                break
            given.append(kwargs.pop(name))
        return own.forward(self, *given, **kwargs)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = len(args) + sum(name in kwargs for name in names[len(args) :])
        if spread and found != len(names):
            raise ApplyError(
                f"{own.__name__} was given {found} inputs in order, and its plan was derived and proven with {len(names)}: give as "
                "many as example_inputs="
            )
        return own.__call__(self, *args, **kwargs)

    by_name = [inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in names]
    by_name = by_name if spread else [one.replace(kind=one.POSITIONAL_OR_KEYWORD) for one in in_order]
    shown = [before[0].replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD), *by_name]
    shown += [one for one in before[1:] if one not in in_order]
    forward.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    meta = type("_Named", (type(own),), {})
    copyreg.pickle(meta, _reduced)
    # Its module is this one: other processes make it of `own`, and look for no code of it.
    body = {"forward": forward, "__call__": call, "__module__": __name__, "__qualname__": own.__qualname__}
    made: type[Any] = meta(own.__name__, (own,), body | {"__doc__": own.__doc__, _MADE_FROM: (own, count)})
    return made


_MADE_FROM = "_named_inputs_of"


def _reduced(kind: type[Any]) -> Any:
    """How such a class is pickled; classes made of it are found by their names."""
    return (_with_names, vars(kind)[_MADE_FROM]) if _MADE_FROM in vars(kind) else kind.__qualname__
