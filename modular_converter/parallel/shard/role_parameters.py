"""Parameters with a role: shares that communicate wherever the model's code computes with them.

The role is on the parameter, not on a module's forward. So it also holds for bare parameters, ``einsum``, tied weights
and functions that take a module's weight.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch

from modular_converter.parallel.shard.collectives import Group, region_of_products
from modular_converter.parallel.solve.operators import functions_where
from modular_converter.parallel.styles import acting
from modular_converter.parallel.styles.forward import WeightUse, weight_forward
from modular_converter.parallel.styles.layout import WeightLayout
from modular_converter.parallel.torch_private import DisableTorchFunctionSubclass


PRODUCTS = functions_where(lambda traits: traits.product)
CARRIERS = functions_where(lambda traits: traits.part)
# Key in the ``__dict__`` of a layer whose product is reduce-scattered along the sequence.
SCATTERS = "_scatters"


class _Role:
    """Mixin: intercepts every function that is called with the tensor."""

    layouts: tuple[WeightLayout, ...]
    whole: bool
    group: Group
    borders: tuple[int, ...]
    scatters = False
    """Whether its products are reduce-scattered along the sequence."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        with DisableTorchFunctionSubclass():
            if name == "__get__":
                return _property(func, args)
            if name in ("__set__", "__delete__"):  # attributes of the parameter itself: its grad, its data
                return func(*args, **kwargs)
            owners = _owners((*args, *kwargs.values()))
            if name in CARRIERS and owners and isinstance(args[0], _Role):
                return _carried(func(*args, **kwargs), owners[0])
            owner = next((owner for owner in owners if owner.layouts), None)
            return func(*args, **kwargs) if owner is None else _with_layout(func, name, owner, args, kwargs)


class RoleParameter(_Role, torch.nn.Parameter):
    """A parameter with a role."""


class RoleTensor(_Role, torch.Tensor):
    """A view or selection of such a parameter."""


def make_parameter(
    local: torch.Tensor, like: torch.Tensor, roles: Collection[WeightLayout], group: Group, borders: tuple[int, ...]
) -> Any:
    """A parameter with a rank's share; ``borders`` as in ``WeightUse``."""
    made = RoleParameter(local, requires_grad=like.requires_grad)
    made.layouts, made.whole = acting(roles), stays_whole(roles)
    made.group, made.borders = group, borders
    return made


def stays_whole(roles: Collection[WeightLayout]) -> bool:
    """Whether a weight with these layouts is cut by none of them."""
    return not any(layout.cuts for layout in roles)


def with_role(local: torch.Tensor, owner: Any) -> torch.Tensor:
    """The tensor with the owner's role; it stays part of the autograd graph."""
    made: Any = local.as_subclass(RoleTensor)
    made.layouts, made.whole, made.group, made.borders = owner.layouts, owner.whole, owner.group, owner.borders
    return made  # type: ignore[no-any-return]


def _owners(values: Any) -> list[_Role]:
    found: list[_Role] = []
    for value in values:
        if isinstance(value, _Role):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(_owners(value))
    return found


def _property(func: Any, args: Any) -> Any:
    value = func(*args)
    owner = args[0]
    if isinstance(value, torch.Tensor) and isinstance(owner, _Role) and getattr(func, "__self__", None) in _TRANSPOSED:
        return _carried(value, owner)
    return value


_TRANSPOSED = {torch.Tensor.T, torch.Tensor.mT}


def _carried(result: Any, owner: _Role) -> Any:
    if isinstance(result, (tuple, list)):
        return type(result)(_carried(item, owner) for item in result)
    if not isinstance(result, torch.Tensor):
        return result
    return with_role(result, owner)


def _with_layout(func: Callable[..., Any], name: str, owner: _Role, args: Any, kwargs: Any) -> Any:
    """The function's result by the first layout that changes it; a tied weight can have several."""
    if "input" in kwargs:  # torch's name for the first argument
        args, kwargs = (kwargs["input"], *args), {key: value for key, value in kwargs.items() if key != "input"}
    region = region_of_products(owner.group, owner.scatters)
    use = WeightUse(func, name, name in PRODUCTS, args, kwargs, region, owner.borders, _is_weight)
    for layout in owner.layouts:
        result = weight_forward(layout, use)
        if result is not NotImplemented:
            return result
    return func(*args, **kwargs)


def _is_weight(value: Any) -> bool:
    return isinstance(value, _Role) and isinstance(value, torch.Tensor)
