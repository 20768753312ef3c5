"""The weights of other processes' stages: with shapes and types, without data, so that no sum leaves them out in silence.

A pipeline lists all parameters of its model. Code that counts them is right; code that treats each alone, such as a decay or
a moving average, does nothing to those of other stages; optimizers get this process's own. What would need their numbers,
such as a norm over all gradients, is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch

from modular_converter.parallel.engine.group.same_calls import CALLS, refused_here
from modular_converter.parallel.engine.group.share_tensors import (
    DRAWN,
    OF_SHAPE,
    marked_classes,
    treats_each_entry,
    unmarked,
)
from modular_converter.parallel.pipeline.stage import without_data
from modular_converter.parallel.trace.record import tensors_in


_NUMBERS = frozenset(
    ("the gradient", *["__format__", "__reduce_ex__", "as_subclass", "backward", "data_ptr", "untyped_storage"])
)
_DRAWN = frozenset(DRAWN.split())
_TENSOR: Any = torch.Tensor
_Facts = tuple[str, torch.device]
"""The name of a weight, and the device of this process."""


class OfOtherStage:
    """The part of the classes that looks at operations."""

    __slots__ = ()

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = tensors_in([*args, *(kwargs or {}).values()], OfOtherStage)
        facts: _Facts = given[0]._facts
        if func == _TENSOR.device.__get__:
            return facts[1]
        if func.__name__ in _DRAWN or getattr(func, "__module__", "") == torch.nn.init.__name__:
            return _drawn(func, args, kwargs or {}, facts)
        name = "the gradient" if func == _TENSOR.grad.__get__ else func.__name__
        if name in _NUMBERS or func not in OF_SHAPE and not treats_each_entry(func):
            raise _refused(name, facts)
        try:
            with unmarked(given):
                found = func(*args, **(kwargs or {}))
        except NotImplementedError as error:  # a copy to a device
            raise _refused(name, facts) from error
        for one in found if isinstance(found, (list, tuple)) else [found]:
            if isinstance(one, torch.Tensor):
                _mark(one, facts)
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise _refused("the numbers", self._facts)  # type: ignore[attr-defined]


_MARKED = marked_classes(OfOtherStage, torch.Tensor, torch.nn.Parameter)


def _mark(tensor: Any, facts: _Facts) -> None:
    tensor.__class__ = _MARKED.get(type(tensor), type(tensor))
    tensor._facts = facts


def _drawn(func: Any, args: Any, kwargs: Any, facts: _Facts) -> Any:
    """Draw the numbers of a weight's entries, and forget them: what is drawn next is what one process draws."""

    def real(one: Any) -> Any:
        own: Any = one if isinstance(one, OfOtherStage) else None
        return one if own is None else torch.empty(own.shape, dtype=own.dtype, device=facts[1])

    found = func(*map(real, args), **{name: real(one) for name, one in kwargs.items()})
    if func.__name__.endswith("_"):
        return next(one for one in (*args, *kwargs.values()) if isinstance(one, OfOtherStage))
    found = found.to("meta")
    _mark(found, facts)
    return found


def _refused(what: str, facts: _Facts) -> Exception:
    return refused_here(
        f"{facts[0]} is a weight of another process's stage, and code here needs {what} of it: without it, this would be that of "
        "this process's stages alone. Take pipeline.clip_grad_norm_(max_norm) for norms, and save_checkpoint, or in a layout "
        "full_state_dict(), for weights; code that treats each weight alone leaves out those with weight.is_meta"
    )


def of_other_stage(name: str, weight: torch.nn.Parameter, place: torch.device) -> Any:
    """A parameter of the same shape and type, without data.

    Args:
        name: in the whole model.
        place: the device of this process.
    """
    made = without_data(weight)
    _mark(made, (name, place))
    return made


def without_other_stages(users: Any, own: Callable[..., Any], optimizer: Any, group: Any) -> Any:
    """``add_param_group`` of an optimizer, which gets the weights of this process's stages."""
    given = group.get("params") if isinstance(group, dict) else None
    if given is not None and not isinstance(given, set):  # which the optimizer refuses
        given = [given] if isinstance(given, torch.Tensor) else given
        weights = [(one, one[-1] if isinstance(one, tuple) else one) for one in given]
        _note_users(users, optimizer, {id(weight) for _, weight in weights})
        group = {**group, "params": [one for one, weight in weights if not isinstance(weight, OfOtherStage)]}
    return own(optimizer, group)


_USERS: WeakKeyDictionary[Any, WeakSet[Any]] = WeakKeyDictionary()
"""Optimizer -> the calls of the models of whose weights it was made."""


def _note_users(users: Any, optimizer: Any, weights: set[int]) -> None:
    for user in list(users):
        if any(id(one) in weights for one in user.parameters()):
            calls = user.__dict__[CALLS]
            _USERS.setdefault(optimizer, WeakSet()).add(calls)
            calls.stepped = calls.stepped or False


def note_step(optimizer: Any) -> None:
    """Let the models know that one of their optimizers makes a step."""
    for calls in _USERS.get(optimizer, ()):
        calls.stepped = True
