"""Run a model whole and sharded on the same inputs, and compare outputs and parameter gradients."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from modular_converter.parallel.errors import PlanError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.proof.decode import decoded, decoded_whole
from modular_converter.parallel.shard.apply import Applied, apply, local_part
from modular_converter.parallel.shard.collectives import Group, ThreadBoard, ThreadGroup
from modular_converter.parallel.trace.record import tensors_in


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
    return Reference([t.detach() for t in outputs], found, collectives)


def reference(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Reference:
    """The whole model's numbers; without gradients where its own backward fails in eval mode (reversible layers)."""
    try:
        return run(model, inputs)
    except (AssertionError, RuntimeError, NotImplementedError, AttributeError):
        return run(model, inputs, gradients=False)


@dataclass(frozen=True)
class Subject:
    """A whole model, its inputs and its numbers, in the precision in which they are compared."""

    model: torch.nn.Module
    inputs: Mapping[str, Any]
    whole: Reference


def conditioned(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Subject:
    """The model, its inputs and its numbers, in a precision in which they mean something.

    Random weights can saturate a softmax: then a float32 gradient is rounding alone, and any other order of sums
    gives another one. Where float64 disagrees with float32 by more than the tolerance, all is done in float64.
    """
    found = _conditioned(model, inputs)
    return replace(found, whole=replace(found.whole, tokens=decoded_whole(found.model, found.inputs)))


def _conditioned(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Subject:
    single = Subject(model, inputs, reference(model, inputs))
    try:
        fine = copy.deepcopy(model).double()
        fine_inputs = {name: _doubled(value) for name, value in inputs.items()}
        double = Subject(fine, fine_inputs, reference(fine, fine_inputs))
    except Exception:  # a model with a type of its own somewhere: float32 has to do
        return single
    return single if _agree(single.whole, double.whole) else double


def _agree(single: Reference, double: Reference) -> bool:
    """Whether float32 and float64 give the same numbers within the tolerances of a verdict."""
    if len(single.outputs) != len(double.outputs) or single.gradients.keys() != double.gradients.keys():
        return False
    errors = [relative_error(a.double(), b.double()) for a, b in zip(single.outputs, double.outputs)]
    largest = max((_scale(gradient) for gradient in single.gradients.values()), default=0.0)
    for name, gradient in single.gradients.items():
        scale = max(_scale(gradient), largest * _SMALL)
        if not relative_error(gradient.double(), double.gradients[name].double(), scale) <= GRADIENT_TOLERANCE:
            return False
    return all(error <= OUTPUT_TOLERANCE for error in errors)


def _doubled(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(_doubled(item) for item in value)
    return value


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
    largest = max((_scale(gradient) for gradient in whole.gradients.values()), default=0.0)
    errors: dict[str, float] = {}
    for name, want in whole.gradients.items():
        piece = applied.resolution.pieces.get(name)
        share = found.gradients.get(name)
        if share is None:
            errors[name] = math.inf
            continue
        local = want if piece is None else local_part(want, piece, applied.group)
        errors[name] = relative_error(share, local, max(_scale(want), largest * _SMALL))
    return errors


def _has_gradient(name: str, applied: Applied, whole: Reference) -> bool:
    """Whether a gradient other than zero reached a parameter, under whichever of its names it is known."""
    parameter = applied.model.get_parameter(name)
    names = (key for key, other in applied.model.named_parameters() if other is parameter)
    return any(key in whole.gradients and bool(whole.gradients[key].any()) for key in names)


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
    """``screen`` for a plan that is tried once."""
    return screen(conditioned(model, inputs), plan, ranks)


def screen(subject: Subject, plan: Plan, ranks: int) -> Verdict:
    """The same check with the ranks as threads of this process: a quick screen, gloo has the last word.

    Returns:
        The first failing verdict of a rank, or the first rank's.
    """
    board = ThreadBoard(ranks)
    verdicts: list[Verdict | None] = [None] * ranks
    copies = [copy.deepcopy(subject.model) for _ in range(ranks)]

    def work(rank: int) -> None:
        with board.baton:
            verdict = check(copies[rank], plan, subject.inputs, ThreadGroup(board, rank), subject.whole)
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
