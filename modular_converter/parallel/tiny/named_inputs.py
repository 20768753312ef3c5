"""Example inputs by their names; a forward that takes inputs by position alone gets names for them.

All proofs and checks call a model by names.
"""

from __future__ import annotations

import copyreg
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError, BuildError


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
