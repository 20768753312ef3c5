"""The forward of a plain linear layer on a share of its weight, without a tensor that intercepts calls.

Interception costs ten microseconds a call, and ``torch.compile`` cannot trace it. All other code that reads the weight
gets the tensor with its role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch.distributed.tensor import DTensor

from modular_converter.parallel.engine.base.callers import called_alone
from modular_converter.parallel.engine.base.inner_forward import conv1d_product, is_conv1d
from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.shard.collectives import GroupRegion, ScatteringRegion
from modular_converter.parallel.shard.role_parameters import RoleOwner
from modular_converter.parallel.styles.forward import layer_product
from modular_converter.parallel.styles.layout import WeightLayout


# Key in the ``__dict__`` of a layer whose product is reduce-scattered along the sequence.
SCATTERS = "_scatters"


class _Held(RoleOwner, Protocol):
    @property
    def of_product(self) -> WeightLayout | None: ...
    @property
    def copies(self) -> bool: ...
    @property
    def summed(self) -> bool: ...
    @property
    def is_part(self) -> bool: ...
    def local(self, held: Any) -> Any: ...


def product_forward(kind: type[Any], held: Mapping[str, _Held]) -> Callable[..., Any] | None:
    """The forward for modules of a class with these weights; None if they keep their own."""
    weight = held.get("weight")
    if weight is None or weight.of_product is None or any(one.copies or one.summed for one in held.values()):
        return None
    if kind.forward is torch.nn.Linear.forward:
        return _linear
    return _conv1d if is_conv1d(kind) else None


def _linear(self: Any, input: torch.Tensor) -> Any:
    return _product(self, F.linear, input)


def _conv1d(self: Any, x: torch.Tensor) -> Any:
    return _product(self, conv1d_product, x)


def _product(module: Any, function: Callable[..., Any], input: torch.Tensor) -> Any:
    held = module._held["weight"]
    if not torch.compiler.is_compiling() and called_alone(module) and not held.of_product.whole_outside:
        return function(input, _whole(module, "weight"), _whole(module, "bias"))
    scatters = SCATTERS in module.__dict__ and torch.is_grad_enabled()
    region = (ScatteringRegion if scatters else GroupRegion)(held.group)
    weight, bias = _local(module, "weight"), _local(module, "bias")
    return layer_product(held.of_product, region, held.borders, function, input, weight, bias)


def _whole(module: Any, leaf: str) -> Any:
    """The whole weight, which all processes gather. Raises ``ApplyError`` for a share that no placement of torch describes."""
    stored = module._parameters.get(leaf)
    if stored is None or isinstance(stored, DTensor):
        return None if stored is None else stored.full_tensor()
    if leaf in module._held and module._held[leaf].is_part:
        raise ApplyError(
            f"a {type(module).__name__} that holds this process's share was called by itself, and would take and give shares: "
            "call the module around it"
        )
    return stored


def _local(module: Any, leaf: str) -> Any:
    stored = module._parameters.get(leaf)
    held = module._held.get(leaf)
    return stored if held is None else held.local(stored)
