"""Run a model whole and sharded on the same inputs, and compare outputs and parameter gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.decode import decoded
from modular_converter.parallel.shard.apply import Applied, apply, local_part
from modular_converter.parallel.shard.collectives import Group
from modular_converter.parallel.trace.record import tensors_in


# Relative to the largest entry of the whole model's tensor, float32. Right plans stay below 1e-5 of it; the smallest
# wrong ones seen in the tests are above 1e-2.
OUTPUT_TOLERANCE = 2e-4
GRADIENT_TOLERANCE = 1e-3
_FLOOR = 1e-6
# A gradient below this share of the largest one counts as zero: key biases under a softmax have none but rounding.
SMALL = 1e-3


@dataclass(frozen=True)
class Verdict:
    """The outcome on one rank. ``layer`` and ``reason`` are empty when everything agrees.

    Attributes:
        output_error, gradient_error: largest deviation, relative to the largest entry of the tensor.
        collectives: calls between the ranks in one forward, counted.
        unproven: sharded parameters that no gradient reaches, so that only the outputs speak for them.
    """

    ranks: int
    output_error: float
    gradient_error: float
    layer: str = ""
    reason: str = ""
    collectives: int = 0
    unproven: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.reason


@dataclass
class Reference:
    """Outputs and gradients of one run; ``collectives`` is what its forward called.

    ``tokens`` are the logits of the first decoded tokens, for a model that generates.
    """

    outputs: list[torch.Tensor]
    gradients: dict[str, torch.Tensor]
    collectives: int = 0
    tokens: list[torch.Tensor] = field(default_factory=list)


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
    torch.manual_seed(11)
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
        return Verdict(group.size, math.inf, math.inf, str(error).partition(":")[0], str(error))
    except Exception as error:  # a wrong plan breaks a model's own code in any way
        layer = _failed_in(error, model)
        return Verdict(group.size, math.inf, math.inf, layer, f"{type(error).__name__}: {str(error)[:200]}")
    return _judge(applied, found, whole)


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


def _judge(applied: Applied, found: Reference, whole: Reference) -> Verdict:
    size = applied.group.size
    if not whole.outputs:
        return Verdict(size, math.inf, math.inf, "the outputs", "no floating output to compare")
    if not any(torch.isfinite(tensor).all() for tensor in whole.outputs):
        return Verdict(size, math.inf, math.inf, "the outputs", "the whole model's own outputs are not finite")
    if len(found.outputs) != len(whole.outputs):
        reason = f"{len(found.outputs)} outputs instead of {len(whole.outputs)}"
        return Verdict(size, math.inf, math.inf, "the outputs", reason)
    errors = [relative_error(got, want) for got, want in zip(found.outputs, whole.outputs)]
    layer, reason = "", ""
    bad = next((i for i, error in enumerate(errors) if not error <= OUTPUT_TOLERANCE), None)
    if bad is not None:
        layer, reason = "the outputs", f"output {bad} differs by {errors[bad]:.2g} of its scale"
    later = [relative_error(got, want) for got, want in zip(found.tokens, whole.tokens)]
    if max(later, default=0.0) > OUTPUT_TOLERANCE and not reason:
        layer, reason = "the decoded tokens", f"their logits differ by {max(later):.2g} of their scale"
    gradients = _gradient_errors(applied, found, whole)
    wrong = next((name for name, error in gradients.items() if not error <= GRADIENT_TOLERANCE), None)
    if wrong is not None and not reason:
        layer, reason = wrong, f"the gradient of {wrong} differs by {gradients[wrong]:.2g} of its scale"
    sharded = [name for name, piece in applied.resolution.pieces.items() if piece.dim >= 0]
    unproven = tuple(name for name in sharded if not _has_gradient(name, applied, whole))
    worst = max(gradients.values(), default=0.0)
    return Verdict(size, max(errors + later), worst, layer, reason, found.collectives, unproven)


def _gradient_errors(applied: Applied, found: Reference, whole: Reference) -> dict[str, float]:
    """Parameter name -> deviation of this rank's share of the gradient; infinite for one that is missing."""
    largest = max((scale_of(gradient) for gradient in whole.gradients.values()), default=0.0)
    errors: dict[str, float] = {}
    for name, want in whole.gradients.items():
        piece = applied.resolution.pieces.get(name)
        share = found.gradients.get(name)
        if share is None:
            errors[name] = math.inf
            continue
        local = want if piece is None else local_part(want, piece, applied.group)
        errors[name] = relative_error(share, local, max(scale_of(want), largest * SMALL))
    return errors


def _has_gradient(name: str, applied: Applied, whole: Reference) -> bool:
    """Whether a gradient other than zero reached a parameter, under whichever of its names it is known."""
    parameter = applied.model.get_parameter(name)
    names = (key for key, other in applied.model.named_parameters() if other is parameter)
    return any(key in whole.gradients and bool(whole.gradients[key].any()) for key in names)


def scale_of(tensor: torch.Tensor) -> float:
    """The largest finite entry."""
    if math.isfinite(largest := _largest(tensor)):
        return largest
    finite = tensor[torch.isfinite(tensor)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def relative_error(got: torch.Tensor, want: torch.Tensor, scale: float | None = None) -> float:
    """The largest deviation over the scale; infinite for another shape or other non-finite entries."""
    if got.shape != want.shape:
        return math.inf
    size = (scale_of(want) if scale is None else scale) + _FLOOR
    if math.isfinite(largest := _largest(got - want)):  # so both are finite everywhere
        return largest / size
    finite = torch.isfinite(want)
    if not torch.equal(torch.isfinite(got), finite):
        return math.inf
    if not torch.allclose(got[~finite], want[~finite], equal_nan=True):
        return math.inf
    return float((got[finite] - want[finite]).abs().max()) / size if finite.any() else 0.0


def _largest(tensor: torch.Tensor) -> float:
    """The largest magnitude, in one pass; not finite if any entry is not."""
    if not tensor.numel():
        return 0.0
    if tensor.is_complex():
        return float(tensor.abs().max())
    low, high = tensor.aminmax()
    return max(-float(low), float(high)) + 0.0
