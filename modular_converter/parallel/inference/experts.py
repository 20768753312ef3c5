"""Experts with fewer kernels around their products than the library's code has, and fewer bytes in compiled code.

A plan that slices each expert divides the two products, and none of the work around them: every rank sorts all routes, and
reads and writes a row of the hidden size for each. Here routes are sorted by keys of one or two bytes instead of eight (a
pass for each byte), a search in them gives the ends of the groups, and one kernel puts a token's rows back, weighs them,
and adds them up. On two H200 a forward of qwen3_moe on 16384 tokens took 106 ms instead of 129 (one device 204), and
1,290 kernels instead of 1,800.

For a token of `generate` the library copies the weights of each route's expert together, and multiplies the copy. In
compiled code the product is here a sum that reads these weights where they are: a third of the bytes.

Which module may have this forward is found by a trial: the module's own grouped form must give the same numbers.
"""

from __future__ import annotations

import copy
import functools
import logging
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from modular_converter.parallel.errors import one_line
from modular_converter.parallel.inference.fused import Fused
from modular_converter.parallel.shard.forwards import swap_forward


try:
    import triton  # type: ignore[import-not-found]
    import triton.language as tl  # type: ignore[import-not-found]
except ImportError:  # torch for CPUs comes without it
    triton = tl = None

logger = logging.getLogger(__name__)
Combine = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
# The library's names of the implementations (the second that of a token of `generate`), and of the two stacks of weights.
GROUPED, BATCHED, WEIGHTS = "grouped_mm", "batched_mm", ("gate_up_proj", "down_proj")
# Columns of a block of the kernel.
_BLOCK = 1 << 10


def _combine(rows, places, weights, found, width, routes: tl.constexpr, rounds: tl.constexpr, block: tl.constexpr):  # type: ignore[no-untyped-def]
    token = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    inside = columns < width
    total = tl.zeros((block,), tl.float32)
    for route in tl.static_range(routes):
        place = tl.load(places + token * routes + route)
        weight = tl.load(weights + token * routes + route).to(tl.float32)
        row = tl.load(rows + place * width + columns, mask=inside, other=0.0).to(tl.float32) * weight
        if rounds:
            row = row.to(found.dtype.element_ty).to(tl.float32)
        total += row
    tl.store(found + token * width + columns, total.to(found.dtype.element_ty), mask=inside)


def combined(rows: torch.Tensor, places: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """The weighted sum of each token's rows, as operations of torch.

    Args:
        rows: [routes, hidden size], in any order.
        places: [tokens × routes of a token], the row of each route.
        weights: [tokens, routes of a token].
    """
    weighted = rows[places].view(*weights.shape, rows.shape[-1]) * weights.unsqueeze(-1)
    return weighted.sum(1).to(rows.dtype)


@functools.cache
def combine_kernel(device: torch.device, kind: torch.dtype, of_weights: torch.dtype) -> Combine:
    """The weighted sum in one kernel on a GPU, or its shape without data; ``combined`` where it cannot be compiled, or gives other numbers.

    Args:
        kind, of_weights: the types of rows and weights.
    """
    if device.type == "meta":  # what the kernel makes
        return lambda rows, places, weights: rows.new_empty(weights.shape[0], rows.shape[-1])
    if triton is None or device.type != "cuda":
        return combined
    compiled = triton.jit(_combine)

    def combine(rows: torch.Tensor, places: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        tokens, routes = weights.shape
        width = rows.shape[-1]
        found = rows.new_empty(tokens, width)
        if found.numel():
            grid, rounds = (tokens, -(-width // _BLOCK)), of_weights == kind
            compiled[grid](
                rows, places, weights.contiguous(), found, width, routes=routes, rounds=rounds, block=_BLOCK
            )
        return found

    generator = torch.Generator().manual_seed(5)
    rows, weights = torch.randn(40, 1040, generator=generator), torch.rand(5, 8, generator=generator)
    given = (rows.to(device, kind), torch.randperm(40, generator=generator).to(device), weights.to(device, of_weights))
    bound = 1e-5 if kind == torch.float32 else 1e-2
    try:
        if torch.allclose(combine(*given), combined(*given), rtol=bound, atol=bound):
            return combine
    except Exception as error:  # no compiler on this machine, or an unknown GPU
        logger.info("rows of experts are added up by four kernels: %s", one_line(error))
    return combined


@functools.cache
def _experts(device: torch.device, kind: torch.dtype, number: int) -> torch.Tensor:
    with torch.inference_mode(False):
        return torch.arange(number, dtype=kind, device=device)


def grouped(
    module: Any, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor, combine: Combine
) -> torch.Tensor:
    """The output of experts: [tokens, hidden size].

    Args:
        module: with the library's names of its weights and settings.
        hidden: [tokens, hidden size].
        index: [tokens, routes of a token], the expert of each route; ``weights`` of the same shape.
    """
    routes, experts = index.shape[-1], module.num_experts
    kind = torch.uint8 if experts <= 1 << 8 else torch.int16 if experts < 1 << 15 else torch.int64
    sorted_ids, order = torch.sort(index.reshape(-1).to(kind))
    numbers = _experts.__wrapped__ if index.is_meta else _experts
    ends = torch.searchsorted(sorted_ids, numbers(index.device, kind, experts), right=True, out_int32=True)
    up, down = _weights(module, True)
    found = F.grouped_mm(hidden[order // routes], up, offs=ends)
    found = F.grouped_mm(module._apply_gate(found).to(down.dtype), down, offs=ends)
    places = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=order.device))
    return combine(found, places, weights)


def summed_products(module: Any, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """What ``grouped`` gives, for compiled code and few routes: each weight of a route is multiplied, and the rows are summed."""
    up, down = _weights(module, False)
    experts, rows = index.reshape(-1), hidden.repeat_interleave(index.shape[-1], 0)
    gated: torch.Tensor = module._apply_gate((up[experts] * rows.unsqueeze(1)).sum(-1))
    found = (down[experts] * gated.unsqueeze(1)).sum(-1).view(*weights.shape, -1)
    return (found * weights.unsqueeze(-1)).sum(1).to(hidden.dtype)


def _weights(module: Any, transposed: bool) -> list[torch.Tensor]:
    """Both stacks: [experts, out, in], or [experts, in, out] if transposed."""
    own = [getattr(module, name) for name in WEIGHTS]  # in a process group, the shares
    return own if module.is_transposed == transposed else [one.transpose(-2, -1) for one in own]


class _FewKernels(Fused):
    """Put before a class of experts: its grouped form in fewer kernels, and in compiled code that of a token, without gradients."""

    config: Any

    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        if len(args) == 3 and not kwargs and self._may_be_fused(*args):
            if torch.compiler.is_compiling():
                return summed_products(self, *args)
            return grouped(self, *args, combine_kernel(args[0].device, args[0].dtype, args[2].dtype))
        kept: torch.Tensor = super().forward(*args, **kwargs)
        return kept

    def _may_be_fused(self, hidden: torch.Tensor, index: torch.Tensor, weights: torch.Tensor) -> bool:
        own = [getattr(self, name) for name in WEIGHTS]
        return (
            self._fused
            and self.config._experts_implementation == (BATCHED if torch.compiler.is_compiling() else GROUPED)
            and not torch.is_grad_enabled()
            and index.shape == weights.shape
            and hidden.shape[:-1] == index.shape[:1]
            and all(type(one) is torch.nn.Parameter and one.dtype == hidden.dtype for one in own)
            and weights.dtype in (hidden.dtype, torch.float32)
        )

    def may_change(self, name: str) -> bool:
        """The settings that choose an implementation, and the class, which a sum of the output is put before later."""
        return name in ("config", "__class__")


def fuse_experts(model: torch.nn.Module) -> int:
    """Give all experts that agree the form of fewer kernels, in place, for inference; return the number of these modules.

    Before anything is put around the outputs of modules: a sum over ranks comes after this forward.
    """
    found = 0
    for module in model.modules():
        if tuple(module._parameters) == WEIGHTS and "forward" not in vars(module) and _is_grouped(module):
            swap_forward(module, _FewKernels, outermost=True)
            module.__dict__["_fused"] = True
            found += 1
    return found


def _is_grouped(module: Any) -> bool:
    """Whether a module's own grouped form gives the same numbers, with other weights of a few small experts."""
    if getattr(getattr(module, "config", None), "_experts_implementation", None) != GROUPED:
        return False
    if getattr(module, "_is_expert_parallel", False):  # an index may be beyond the experts then
        return False
    experts, hidden, inner, tokens, routes = 5, 16, 8, 7, 2
    generator = torch.Generator().manual_seed(5)
    trial = copy.copy(module)
    trial.training = False
    try:
        shapes = ((hidden, 2 * inner), (inner, hidden))
        drawn = [torch.randn(experts, *(s if module.is_transposed else s[::-1]), generator=generator) for s in shapes]
        trial._parameters = {name: torch.nn.Parameter(one) for name, one in zip(WEIGHTS, drawn)}
        trial.num_experts = experts
        given = torch.randn(tokens, hidden, generator=generator)
        index = torch.rand(tokens, experts - 1, generator=generator).argsort(-1)[:, :routes]  # the last has no route
        weights = torch.rand(tokens, routes, generator=generator)
        with torch.no_grad():
            want = trial.forward(given, index, weights)
            found = (grouped(trial, given, index, weights, combined), summed_products(trial, given, index, weights))
            return all(torch.allclose(one, want, rtol=1e-5, atol=1e-5) for one in found)
    except Exception as error:  # other names or another meaning of the weights
        logger.info("%s keeps its own forward: %s", type(module).__name__, one_line(error))
        return False
