"""Run a model whole and sharded on the same inputs, and compare outputs and parameter gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.decode import decoded
from modular_converter.parallel.proof.judge import Reference, Verdict, judge, refused
from modular_converter.parallel.shard.apply import Applied, apply, local_part
from modular_converter.parallel.shard.collectives import Group
from modular_converter.parallel.tiny.seed import seed_cpu
from modular_converter.parallel.trace.record import tensors_in


class Counted:
    """A group that counts the calls made through it."""

    def __init__(self, group: Group) -> None:
        self.group, self.rank, self.size, self.calls = group, group.rank, group.size, 0

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.group.all_reduce(tensor)

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        self.calls += 1
        return self.group.all_gather(tensor)


def run(
    model: torch.nn.Module, inputs: Mapping[str, Any], gradients: bool = True, group: Counted | None = None
) -> Reference:
    """One forward and backward from a fixed weighting of all floating outputs.

    Gradients are by parameter name, one entry for tied names; parameters without one are left out.
    """
    seed_cpu(11)
    model.zero_grad(set_to_none=True)
    outputs = [t for t in tensors_in(model(**inputs)) if t.is_floating_point()]
    collectives = group.calls if group is not None else 0
    loss = _loss(outputs) if gradients else None
    if loss is not None:
        loss.backward()  # type: ignore[no-untyped-call]
    found = {name: p.grad.detach().clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    _let_go(model)
    return Reference([t.detach() for t in outputs], found, collectives)


def _let_go(model: torch.nn.Module) -> None:
    """State that recurrent layers keep on themselves may hold a graph, and such a model cannot be copied."""
    for module in model.modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and value.grad_fn is not None:
                setattr(module, name, value.detach())


def reference(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Reference:
    """The whole model's numbers; without gradients where its own backward fails in eval mode (reversible layers)."""
    try:
        return run(model, inputs)
    except (AssertionError, RuntimeError, NotImplementedError, AttributeError):
        return run(model, inputs, gradients=False)


def _loss(outputs: list[torch.Tensor]) -> torch.Tensor | None:
    generator = torch.Generator().manual_seed(3)
    terms = []
    for tensor in outputs:
        weights = torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
        if tensor.requires_grad:
            terms.append((torch.where(torch.isfinite(tensor), tensor, torch.zeros_like(tensor)) * weights).sum())
    return torch.stack([term.double() for term in terms]).sum() if terms else None


def check(model: torch.nn.Module, plan: Plan, inputs: Mapping[str, Any], group: Group, whole: Reference) -> Verdict:
    """Shard ``model`` in place for one rank, run it, compare with the whole model's numbers."""
    counted = Counted(group)
    try:
        applied = apply(model, plan, counted)
        found = run(model, inputs, gradients=bool(whole.gradients), group=counted)
        found.tokens = decoded(model, inputs) if whole.tokens else []
    except PlanError as error:
        return refused(group.size, str(error).partition(":")[0], str(error))
    except Exception as error:  # a wrong plan breaks a model's own code in any way
        return refused(group.size, _failed_in(error, model), f"{type(error).__name__}: {str(error)[:200]}")
    pieces = applied.resolution.pieces

    def share(name: str, gradient: torch.Tensor) -> torch.Tensor:
        return local_part(gradient, pieces[name], group) if name in pieces else gradient

    sharded = [name for name, piece in pieces.items() if piece.dim >= 0]
    unproven = tuple(name for name in sharded if not _has_gradient(name, applied, whole))
    return replace(judge(found, whole, group.size, share), unproven=unproven)


def _failed_in(error: BaseException, model: torch.nn.Module) -> str:
    """The path of the innermost module whose forward was running, from the frames of the traceback."""
    paths = {id(module): path for path, module in model.named_modules()}
    frame, found = error.__traceback__, ""
    while frame is not None:
        owner = frame.tb_frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module):
            found = paths.get(id(owner)) or found or type(owner).__name__
        frame = frame.tb_next
    return found


def _has_gradient(name: str, applied: Applied, whole: Reference) -> bool:
    """Whether a gradient other than zero reached a parameter, under any of its names."""
    parameter = applied.model.get_parameter(name)
    names = (key for key, other in applied.model.named_parameters() if other is parameter)
    return any(key in whole.gradients and bool(whole.gradients[key].any()) for key in names)
