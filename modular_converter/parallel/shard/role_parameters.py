"""Parameters that know their role: a shard that communicates wherever the model's code computes with it.

The role sits on the parameter, not on a module's forward, so that bare parameters, ``einsum``, shared weights and
functions that are handed a module's weight all behave alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from modular_converter.parallel.plans.resolve import COLUMN, GATHER, GRADIENT, ROW, SPLIT_ROW, VOCABULARY
from modular_converter.parallel.shard.collectives import Group, enter, gathered, summed
from modular_converter.parallel.solve.operators import functions_where


PRODUCTS = functions_where(lambda traits: traits.product)
CARRIERS = functions_where(lambda traits: traits.part)


class _Role:
    """Mixin: intercepts every function that is called with the tensor."""

    roles: frozenset[str]
    group: Group
    rows: tuple[int, int]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        with torch._C.DisableTorchFunctionSubclass():
            if name == "__get__":
                return _property(func, args)
            owners = _owners((*args, *kwargs.values()))
            owner = next((o for o in owners if o.roles & _ACTIVE), None)
            if name in CARRIERS and owners and isinstance(args[0], _Role):
                return _carried(func(*args, **kwargs), owners[0])
            if owner is None:
                return func(*args, **kwargs)
            if GRADIENT in owner.roles:
                return _with_gradient(func, args, kwargs)
            if name == "embedding" and VOCABULARY in owner.roles:
                return _vocabulary(owner, *args, **kwargs)
            if name in PRODUCTS:
                return _product(func, name, owner, args, kwargs)
            return func(*args, **kwargs)


_ACTIVE = {COLUMN, ROW, GATHER, SPLIT_ROW, VOCABULARY, GRADIENT}


class RoleParameter(_Role, torch.nn.Parameter):
    """A parameter with a role."""


class RoleTensor(_Role, torch.Tensor):
    """A view or selection of such a parameter."""


def make_parameter(local: torch.Tensor, like: torch.Tensor, roles: frozenset[str], group: Group, first: int) -> Any:
    """A parameter that holds a rank's share. ``first`` is its first row, for vocabularies."""
    made = RoleParameter(local, requires_grad=like.requires_grad)
    made.roles, made.group = roles, group
    made.rows = (first, first + (local.shape[0] if local.dim() else 1))
    return made


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
    made = result.as_subclass(RoleTensor)
    made.roles, made.group, made.rows = owner.roles, owner.group, owner.rows
    return made


def _with_gradient(func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    def convert(value: Any) -> Any:
        if isinstance(value, _Role) and GRADIENT in value.roles and isinstance(value, torch.Tensor):
            return enter(value.as_subclass(torch.Tensor), value.group)
        if type(value) in (list, tuple):
            return type(value)(convert(item) for item in value)
        return value

    return func(*(convert(arg) for arg in args), **{key: convert(value) for key, value in kwargs.items()})


def _product(func: Callable[..., Any], name: str, owner: _Role, args: Any, kwargs: Any) -> Any:
    group = owner.group
    if owner.roles & {COLUMN, GATHER}:
        args = tuple(_entered(arg, group) for arg in args)
        result = func(*args, **kwargs)
        if GATHER not in owner.roles:
            return result
        return gathered(result, group, 1 if name.startswith("conv") else -1)
    return _row(func, name, owner, args, kwargs)


def _row(func: Callable[..., Any], name: str, owner: _Role, args: Any, kwargs: Any) -> Any:
    """A partial product, summed; the bias is whole and added once, after the sum."""
    group = owner.group
    args = list(args)
    if name == "addmm":
        bias, left, right = args[:3]
        return summed(_cut(left, owner) @ right, group) + bias
    bias = kwargs.pop("bias", None) if "bias" in kwargs else None
    if (name == "linear" or name.startswith("conv")) and len(args) > 2:
        bias, args[2] = args[2], None
    args[0] = _cut(args[0], owner)
    result = summed(func(*args, **kwargs), group)
    if bias is None:
        return result
    if name.startswith("conv"):
        bias = bias.view(-1, *[1] * int(name[-2]))
    return result + bias


def _cut(value: Any, owner: _Role) -> Any:
    """For ``split_row``: this rank's slice of a whole input."""
    if SPLIT_ROW not in owner.roles:
        return value
    return enter(value, owner.group).chunk(owner.group.size, -1)[owner.group.rank]


def _entered(value: Any, group: Group) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_entered(item, group) for item in value)
    if isinstance(value, torch.Tensor) and not isinstance(value, _Role) and value.is_floating_point():
        return enter(value, group)
    return value


def _vocabulary(
    owner: Any, ids: torch.Tensor, weight: Any, padding_idx: int | None = None, *rest: Any, **more: Any
) -> Any:
    """Rows that another rank holds count as zero here; the sum over the ranks is the whole embedding.

    Rows that none holds are an error, as they are in a whole embedding.
    """
    first, last = owner.rows
    known = (ids >= first) & (ids < last)
    elsewhere = ~known & (ids >= 0) & (ids < owner.group.size * (last - first))
    local = torch.where(elsewhere, torch.zeros_like(ids), ids - first)
    pad = None if padding_idx is None or not first <= padding_idx < last else padding_idx - first
    found = F.embedding(local, weight.as_subclass(torch.Tensor), pad)
    return summed(found * known.unsqueeze(-1).to(found.dtype), owner.group)
