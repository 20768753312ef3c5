"""Attention on tensors without data as a fused kernel does it, and masks that hide nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode


class PlainInputs(TorchFunctionMode):
    """Lets ``all(…)`` be true without data: here masks hide nothing, and positions are consecutive."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__bool__" and getattr(args[0], "_is_all", False):
            return True
        result = func(*args, **(kwargs or {}))
        if name == "all" and isinstance(result, torch.Tensor) and result.is_meta:
            result._is_all = True  # type: ignore[attr-defined]
        return result


class FusedAttention(TorchFunctionMode):
    """Counts attention like a fused kernel, which keeps no matrix of scores; a causal kernel does half of the work.

    Args:
        count: called with the floating-point operations of each forward and of each backward.

    Attributes:
        dropout: the largest rate that a call has asked for.
    """

    def __init__(self, count: Callable[[float], None]) -> None:
        super().__init__()
        self.count = count
        self.dropout = 0.0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        return self._fused(*args, **(kwargs or {}))

    def _fused(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **_: Any,
    ) -> torch.Tensor:
        self.dropout = max(self.dropout, dropout_p)
        rows = math.prod(query.shape[:-1])
        pairs = rows * key.shape[-2] * (0.5 if is_causal else 1.0)
        flops = 2 * pairs * (query.shape[-1] + value.shape[-1])
        self.count(flops)
        found: torch.Tensor = _Fused.apply(query, key, value, self.count, flops)  # type: ignore[no-untyped-call]
        return found


class _Fused(torch.autograd.Function):
    """The shapes of fused attention, and the tensors that it keeps: inputs, output, and a number for each row.

    The output has the order of its dimensions in memory from the query, as those of the kernels: where heads lie inside of
    positions, the model's code then joins them without a copy.
    """

    @staticmethod
    def forward(
        ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, count: Any, flops: float
    ) -> torch.Tensor:
        last, strides = query.dim() - 1, query.stride()
        order = sorted(range(last), key=lambda n: -strides[n])  # outermost first
        shape = [query.shape[n] for n in order]
        back = [order.index(n) for n in range(last)]
        output = query.new_empty(*shape, value.shape[-1]).permute(*back, last)
        sums = query.new_empty(query.shape[:-1], dtype=torch.float32)
        ctx.save_for_backward(query, key, value, output, sums)
        ctx.count, ctx.flops = count, flops
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        """Gradients, beside a sum in float32 and, where query heads share keys, gradients for each query head."""
        query, key, value, _, sums = ctx.saved_tensors
        ctx.count(2.5 * ctx.flops)  # five products for two, of which one is computed again
        _wide = query.new_empty(query.shape, dtype=torch.float32), torch.empty_like(sums)
        _each = []
        if query.dim() > 3 and key.shape[-3] != query.shape[-3]:
            _each = [one.new_empty(*one.shape[:-3], query.shape[-3], *one.shape[-2:]) for one in (key, value)]
        return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value), None, None
