"""Run a model whole and sharded on the same inputs, and compare outputs and parameter gradients."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from modular_converter.parallel.apply import Applied, apply, local_part
from modular_converter.parallel.collectives import Group, ThreadBoard, ThreadGroup
from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.plan import Plan
from modular_converter.parallel.trace import tensors_in


# Relative to the largest entry of the whole model's tensor, float32. Right plans stay below 1e-5 of it; the smallest
# wrong ones seen in the tests are above 1e-2.
OUTPUT_TOLERANCE = 2e-4
GRADIENT_TOLERANCE = 1e-3
_FLOOR = 1e-6
# A gradient below this share of the largest one counts as zero: key biases under a softmax have none but rounding.
_SMALL = 1e-3


@dataclass(frozen=True)
class Verdict:
    """The outcome on one rank. ``layer`` and ``reason`` are empty when everything agrees.

    Attributes:
        output_error, gradient_error: largest deviation, relative to the largest entry of the tensor.
    """

    ranks: int
    output_error: float
    gradient_error: float
    layer: str = ""
    reason: str = ""

    @property
    def passed(self) -> bool:
        return not self.reason


@dataclass
class Reference:
    """Outputs and gradients of the whole model."""

    outputs: list[torch.Tensor]
    gradients: dict[str, torch.Tensor]


def run(model: torch.nn.Module, inputs: Mapping[str, Any], gradients: bool = True) -> Reference:
    """One forward and backward from a fixed weighting of all floating outputs.

    Gradients are by parameter name, one entry for tied names; parameters without one are left out.
    """
    torch.manual_seed(11)
    model.zero_grad(set_to_none=True)
    outputs = [t for t in tensors_in(model(**inputs)) if t.is_floating_point()]
    loss = _loss(outputs) if gradients else None
    if loss is not None:
        loss.backward()  # type: ignore[no-untyped-call]
    found = {name: p.grad.detach().clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad(set_to_none=True)
    return Reference([t.detach() for t in outputs], found)


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
    return torch.stack([term.float() for term in terms]).sum() if terms else None


def check(model: torch.nn.Module, plan: Plan, inputs: Mapping[str, Any], group: Group, whole: Reference) -> Verdict:
    """Shard ``model`` in place for one rank, run it, compare with the whole model's numbers."""
    try:
        applied = apply(model, plan, group)
        found = run(model, inputs, gradients=bool(whole.gradients))
    except PlanError as error:
        return Verdict(group.size, math.inf, math.inf, str(error).partition(":")[0], str(error))
    except Exception as error:  # a wrong plan breaks a model's own code in any way
        layer = _failed_in(error)
        return Verdict(group.size, math.inf, math.inf, layer, f"{type(error).__name__}: {str(error)[:200]}")
    return _judge(applied, found, whole)


def _failed_in(error: BaseException) -> str:
    """The innermost module whose forward was running, from the frames of the traceback."""
    frame, found = error.__traceback__, ""
    while frame is not None:
        owner = frame.tb_frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module):
            found = type(owner).__name__
        frame = frame.tb_next
    return found


def _judge(applied: Applied, found: Reference, whole: Reference) -> Verdict:
    size = applied.group.size
    if not any(torch.isfinite(tensor).all() for tensor in whole.outputs):
        return Verdict(size, math.inf, math.inf, "the outputs", "the whole model's own outputs are not finite")
    output_error, gradient_error, layer, reason = 0.0, 0.0, "", ""
    for index, (got, want) in enumerate(zip(found.outputs, whole.outputs)):
        error = relative_error(got, want)
        output_error = max(output_error, error)
        if not error <= OUTPUT_TOLERANCE and not reason:
            layer, reason = "the outputs", f"output {index} differs by {error:.2g} of its scale"
    largest = max((_scale(gradient) for gradient in whole.gradients.values()), default=0.0)
    for name, want in whole.gradients.items():
        piece = applied.resolution.pieces.get(name)
        want = want if piece is None else local_part(want, piece, applied.group)
        share = found.gradients.get(name)
        error = (
            math.inf
            if share is None
            else relative_error(share, want, max(_scale(whole.gradients[name]), largest * _SMALL))
        )
        gradient_error = max(gradient_error, error)
        if not error <= GRADIENT_TOLERANCE and not reason:
            layer, reason = name, f"the gradient of {name} differs by {error:.2g} of its scale"
    return Verdict(size, output_error, gradient_error, layer, reason)


def _scale(tensor: torch.Tensor) -> float:
    finite = tensor[torch.isfinite(tensor)]
    return float(finite.abs().max()) if finite.numel() else 0.0


def relative_error(got: torch.Tensor, want: torch.Tensor, scale: float | None = None) -> float:
    """The largest deviation over the scale; infinite for another shape or other non-finite entries."""
    if got.shape != want.shape or not torch.equal(torch.isfinite(got), torch.isfinite(want)):
        return math.inf
    finite = torch.isfinite(want)
    if not finite.any():
        return 0.0
    size = (_scale(want) if scale is None else scale) + _FLOOR
    return float((got[finite] - want[finite]).abs().max()) / size


def check_in_threads(model: torch.nn.Module, plan: Plan, inputs: Mapping[str, Any], ranks: int) -> Verdict:
    """The same check with the ranks as threads of this process: a quick screen, gloo has the last word.

    Returns:
        The first failing verdict of a rank, or the first rank's.
    """
    whole = reference(model, inputs)
    board = ThreadBoard(ranks)
    verdicts: list[Verdict | None] = [None] * ranks
    copies = [copy.deepcopy(model) for _ in range(ranks)]

    def work(rank: int) -> None:
        verdict = check(copies[rank], plan, inputs, ThreadGroup(board, rank), whole)
        verdicts[rank] = verdict
        if not verdict.passed:
            board.barrier.abort()

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    done = [verdict for verdict in verdicts if verdict is not None]
    failed = [v for v in done if not v.passed and "another rank failed" not in v.reason]
    return next(iter(failed or [v for v in done if not v.passed] or done))
