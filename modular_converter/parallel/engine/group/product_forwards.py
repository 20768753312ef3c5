"""The forward of a plain linear layer on a share of its weight, without a tensor that intercepts calls.

Interception costs ten microseconds a call, and ``torch.compile`` cannot trace it. All other code that reads the weight
gets the tensor with its role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
import torch.nn.functional as F

from modular_converter.parallel.engine.base.inner_forward import is_conv1d
from modular_converter.parallel.shard.collectives import GroupRegion
from modular_converter.parallel.shard.role_parameters import RoleOwner
from modular_converter.parallel.shard.sequence import ScatteringRegion
from modular_converter.parallel.styles.style import PRODUCT, WeightUse


# Key in the ``__dict__`` of a layer whose product is reduce-scattered along the sequence.
SCATTERS = "_scatters"


class _Held(RoleOwner, Protocol):
    @property
    def copies(self) -> bool: ...
    @property
    def summed(self) -> bool: ...
    def local(self, held: Any) -> Any: ...


def product_forward(kind: type[Any], held: Mapping[str, _Held]) -> Callable[..., Any] | None:
    """The forward for modules of a class with these weights; None if they keep their own."""
    weight = held.get("weight")
    if weight is None or not weight.styles or any(one.copies or one.summed for one in held.values()):
        return None
    if kind.forward is torch.nn.Linear.forward:
        return _linear
    return _conv1d if is_conv1d(kind) else None


def _linear(self: Any, input: torch.Tensor) -> Any:
    weight, bias = _local(self, "weight"), _local(self, "bias")
    region = GroupRegion(self._held["weight"].group)
    if SCATTERS in self.__dict__ and torch.is_grad_enabled():
        bias = region.enter(bias)  # each process adds the bias to its part of the sequence
        region = ScatteringRegion(region.group)
    return _product(self, F.linear, "linear", (input, weight, bias), 0, region)


def _conv1d(self: Any, x: torch.Tensor) -> Any:
    weight, bias = _local(self, "weight"), _local(self, "bias")
    rows = x.view(-1, x.size(-1))
    region = GroupRegion(self._held["weight"].group)
    found = _product(self, torch.addmm, "addmm", (bias, rows, weight), 1, region)
    return found.view(*x.size()[:-1], found.size(-1))


def _local(module: Any, leaf: str) -> Any:
    stored = module._parameters.get(leaf)
    held = module._held.get(leaf)
    return stored if held is None else held.local(stored)


def _product(
    module: Any, function: Callable[..., Any], name: str, args: tuple[Any, ...], input: int, region: GroupRegion
) -> Any:
    held = module._held["weight"]

    def entered() -> tuple[Any, ...]:
        return (*args[:input], region.enter(args[input]), *args[input + 1 :])

    def weights_entered() -> tuple[tuple[Any, ...], dict[str, Any]]:
        return args, {}

    use = WeightUse(function, name, PRODUCT, args, {}, region, held.borders, entered, weights_entered)
    for style in held.styles:
        result = NotImplemented if style.forward is None else style.forward(use)
        if result is not NotImplemented:
            return result
    return function(*args)
