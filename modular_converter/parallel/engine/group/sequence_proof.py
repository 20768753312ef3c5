"""Prove sequence parallelism on a small instance before the user's model is changed."""

from __future__ import annotations

import copy
import functools
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.choice.skeleton import Skeleton
from modular_converter.parallel.choice.small_instances import small_instance, small_settings, target_like
from modular_converter.parallel.engine.group.agreed_plan import from_first_process
from modular_converter.parallel.engine.group.process_grid import ProcessGrid
from modular_converter.parallel.engine.group.sequence_parallel import SequenceParallel
from modular_converter.parallel.engine.group.sequence_zone import (
    CURE,
    Zone,
    closing_products,
    kinds_between,
    with_summed_weights,
    zone_of,
)
from modular_converter.parallel.errors import ApplyError, one_line
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Resolution, fitting, resolve
from modular_converter.parallel.shard.apply import apply, local_part
from modular_converter.parallel.shard.collectives import Group, ThreadGroup, run_on_threads
from modular_converter.parallel.trace.record import tensors_in
from modular_converter.parallel.trace.unchanged import shared_state


_RANKS = 2
# Relative to the largest entry; rounding in single precision is a thousandth of it.
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class SequencePlan:
    """A plan with sequence parallelism; ``products`` are the result of ``closing_products``."""

    plan: Resolution
    zone: Zone
    products: frozenset[str]


def sequence_plan(model: torch.nn.Module, plan: Plan, grid: ProcessGrid, skeleton: Skeleton) -> SequencePlan:
    """The proven plan of a user's model; all processes must call it.

    Raises ``ApplyError`` on all processes if the plan does not allow it, or outputs or gradients differ.
    """
    resolution = resolve(plan, model)
    zone = zone_of(model, resolution)
    with torch.random.fork_rng(devices=[]):
        (said,) = from_first_process(lambda: (_difference(model, plan, zone),), grid.everyone)
    if said:
        raise ApplyError(f"sequence_parallel=: on parts of a sequence {said}: {CURE}")
    return SequencePlan(with_summed_weights(resolution, zone), zone, closing_products(skeleton, resolution, zone))


def _difference(model: Any, plan: Plan, zone: Zone) -> str:
    """The difference between a small instance with and without the plan, in words; empty if there is none."""
    small = small_instance(target_like(model), small_settings(model))
    whole: Any = copy.deepcopy(small.model).float().eval()
    own = zone_of(whole, resolve(fitting(plan, whole), whole))
    strange = kinds_between(model, zone) - kinds_between(whole, own)
    if strange:
        return (
            f"nothing can be tried, since a small instance of its class has no {min(one.__name__ for one in strange)}"
        )
    ids = small.inputs.get("input_ids")
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or ids.shape[1] < _RANKS:
        return "nothing can be tried, since the model takes no input_ids"
    ids = ids[:, : ids.shape[1] // _RANKS * _RANKS]
    chance = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for one in whole.parameters():  # norms of ones and biases of zeros would hide a wrong gradient
            one.add_(torch.randn(one.shape, generator=chance) * 0.05)
    copies = [copy.deepcopy(whole) for _ in range(_RANKS)]
    before = shared_state(whole)
    want = _run(whole, ids)
    before.give_back()
    found = [""] * _RANKS

    def work(group: ThreadGroup) -> bool:
        try:
            found[group.rank] = _compared(copies[group.rank], whole, plan, ids, want, group)
        except Exception as error:  # the model's own code may raise any error
            found[group.rank] = one_line(error, 300)
        return bool(found[group.rank])

    run_on_threads(_RANKS, work, functools.partial(shared_state, whole))
    return next((said for said in found if said and "another rank failed" not in said), next(filter(None, found), ""))


def _compared(own: Any, whole: Any, plan: Plan, ids: torch.Tensor, want: torch.Tensor, group: Group) -> str:
    resolution = resolve(fitting(plan, own), own)
    zone = zone_of(own, resolution)
    apply(own, with_summed_weights(resolution, zone), group)
    SequenceParallel(own, zone, group)
    if not (error := _error(_run(own, ids), want)) <= _TOLERANCE:  # also if it is NaN
        return f"outputs differ by {error:.2g}"
    largest = max(float(one.grad.abs().max()) for one in whole.parameters() if one.grad is not None)
    expected = {name: one.grad for name, one in whole.named_parameters()}
    for name, one in own.named_parameters():
        gradient, piece = expected[name], resolution.pieces.get(name)
        if (gradient is None) != (one.grad is None):
            return f"{name} has a gradient on one side only"
        if gradient is not None:
            share = local_part(gradient, piece, group) if piece is not None else gradient
            if not (error := _error(one.grad, share, largest * 1e-5)) <= _TOLERANCE:
                return f"the gradient of {name} differs by {error:.2g}"
    return ""


def _run(model: Any, ids: torch.Tensor) -> torch.Tensor:
    """The first output of a forward; the gradients are those of a weighted sum of its entries."""
    output = next(one for one in tensors_in(model(input_ids=ids)) if one.is_floating_point())
    chance = torch.Generator().manual_seed(1)
    (output * torch.randn(output.shape, generator=chance)).sum().backward()  # type: ignore[no-untyped-call]
    return output.detach()


def _error(found: Any, want: torch.Tensor, floor: float = 1e-12) -> float:
    difference = (found.as_subclass(torch.Tensor).detach() - want).abs()
    return float(difference.max()) / max(float(want.abs().max()), floor) if want.numel() else 0.0
