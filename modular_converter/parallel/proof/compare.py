"""Run a model whole and sharded, also token by token with a cache, and compare outputs and gradients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from modular_converter.parallel.errors import PlanError, TraceError, one_line
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.resolve import Resolution
from modular_converter.parallel.proof.judge import (
    UNKNOWN,
    WITH_GRADIENTS,
    Evidence,
    Reference,
    Verdict,
    is_inexact,
    judge,
    refused,
    scale_of,
)
from modular_converter.parallel.shard.apply import Applied, apply, local_part
from modular_converter.parallel.shard.collectives import Group, forget_entered
from modular_converter.parallel.tiny.build import seed_cpu
from modular_converter.parallel.trace.record import record, tensors_in
from modular_converter.parallel.trace.unchanged import same_attributes, unchanged


STEPS = 2


def generation_inputs(model: Any, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The inputs that ``generate`` takes, and the special tokens that a small configuration lacks.

    None for a model that does not generate from ids.
    """
    able = getattr(model, "can_generate", None)
    if able is None or not able() or not isinstance(inputs.get("input_ids"), torch.Tensor):
        return None
    found = {name: inputs[name] for name in ("input_ids", "attention_mask") if name in inputs}
    config = getattr(model, "generation_config", None)
    special = ("pad_token_id", "bos_token_id", "decoder_start_token_id")
    return {**found, **{name: 0 for name in special if getattr(config, name, None) is None}}


def decoded(model: Any, inputs: Mapping[str, Any]) -> list[torch.Tensor]:
    """Logits of the first decoded tokens, (batch, vocabulary) each; the second token uses the cache.

    Empty for a model that does not generate from ids. Raises the errors of the model's own code.
    """
    given = generation_inputs(model, inputs)
    if given is None:
        return []
    seed_cpu(11)
    with torch.no_grad():
        result = model.generate(
            **given,
            max_new_tokens=STEPS,
            min_new_tokens=STEPS,
            do_sample=False,
            return_dict_in_generate=True,
            output_logits=True,
        )
    return [step.detach() for step in result.logits]


def decoded_whole(model: Any, inputs: Mapping[str, Any]) -> tuple[list[torch.Tensor], str]:
    """The logits of the whole model; empty, with the reason, if its own ``generate`` fails."""
    try:
        return decoded(model, inputs), ""
    except Exception as error:  # any error of the model's own code
        return [], f"decoding: the model's own generate fails ({one_line(error, 80)})"


# The most backwards: one for each output, and the last for all other outputs.
_MOST_BACKWARDS = 6
# A Python number among the outputs may depend on a share, such as its length.
_NUMBERS = (bool, int, float, complex)
# The most modules that are tried as starts of backwards, if gradients from the outputs are not finite.
_TRIES = 8


class Counted:
    """A group that counts its collectives."""

    def __init__(self, group: Group) -> None:
        self.group, self.rank, self.size, self.calls = group, group.rank, group.size, 0

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.group.all_reduce(tensor)

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        self.calls += 1
        return self.group.all_gather(tensor)

    def sum_of_parts(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        self.calls += 1
        return self.group.sum_of_parts(parts)


def run_model(
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    gradients: bool = True,
    group: Counted | None = None,
    start: str = "",
    together: bool = False,
    scales: Sequence[float] = (),
) -> Reference:
    """Run a forward, and a backward from a weighted sum of each output's entries.

    Parameters without a gradient are left out; tied parameters have one entry.

    Args:
        start: the module at whose outputs the backwards start; the model itself if empty.
        together: one backward from the sum of all outputs, each divided by its scale.
        scales: of the whole model's outputs, for a sharded model: rounding must not change the weights.
    """
    seed_cpu(11)
    model.zero_grad(set_to_none=True)
    inner: list[Any] = []
    with model.get_submodule(start).register_forward_hook(lambda module, args, result: inner.append(result)):
        result = model(**inputs)
    outputs = [torch.as_tensor(value) for value in tensors_in(result, (torch.Tensor, *_NUMBERS))]
    collectives = group.calls if group is not None else 0
    roots = list({id(t): t for t in tensors_in(inner[-1]) if is_inexact(t) and t.requires_grad}.values())
    scales = list(scales or [scale_of(root) or 1.0 for root in roots])
    found = _backwards(model, roots, scales, together) if gradients else []
    model.zero_grad(set_to_none=True)
    return Reference([t.detach() for t in outputs], found, collectives, start=start, scales=scales)


def _backwards(
    model: torch.nn.Module, roots: Sequence[torch.Tensor], scales: Sequence[float], together: bool
) -> list[dict[str, torch.Tensor]]:
    """The gradients of each backward; outputs above ``_MOST_BACKWARDS`` share the last one, each at its own scale."""
    generator = torch.Generator().manual_seed(3)
    pairs = [(root, _weighting(root, scale, generator)) for root, scale in zip(roots, scales)]
    alone = 0 if together else _MOST_BACKWARDS - 1
    groups = [group for group in (*([pair] for pair in pairs[:alone]), pairs[alone:]) if group]
    found = []
    for number, group in enumerate(groups):
        last = number == len(groups) - 1
        torch.autograd.backward([r for r, _ in group], [w for _, w in group], retain_graph=not last)
        found.append({n: p.grad.detach().clone() for n, p in model.named_parameters() if p.grad is not None})
        model.zero_grad(set_to_none=True)
    return found


def _weighting(root: torch.Tensor, scale: float, generator: torch.Generator) -> torch.Tensor:
    """Random weights of the entries, divided by the scale; 0 for entries that are not finite."""
    weights = torch.randn(root.shape, generator=generator).to(root.dtype) / scale
    return torch.where(torch.isfinite(root.detach()), weights, torch.zeros_like(weights))


def reference(model: torch.nn.Module, inputs: Mapping[str, Any], together: bool = False) -> Reference:
    """The whole model's numbers; the model is unchanged, since the ranks begin with the same state.

    If a gradient from the outputs is not finite, backwards start at the last module with finite gradients. There are no
    gradients if the model's own backward fails in eval mode (reversible layers).
    """
    with unchanged(model):
        return _reference(model, inputs, together)


def _reference(model: torch.nn.Module, inputs: Mapping[str, Any], together: bool) -> Reference:
    for both in dict.fromkeys((together, True)):
        try:
            found = run_model(model, inputs, together=both)
        except (AssertionError, RuntimeError, NotImplementedError, AttributeError):
            continue
        return found if _finite(found) else _from_a_module(model, inputs, found)
    return replace(run_model(model, inputs, gradients=False), gaps=("gradients: the model's own backward fails",))


def _from_a_module(model: torch.nn.Module, inputs: Mapping[str, Any], found: Reference) -> Reference:
    """The numbers with gradients from the last module that gives finite ones; unchanged if there is none."""
    for path in _last_calls(model, inputs):
        try:
            again = run_model(model, inputs, start=path)
        except (AssertionError, RuntimeError, NotImplementedError, AttributeError):
            continue
        if again.gradients and _finite(again):
            return replace(again, gaps=(f"gradients of what follows {path}: they are not finite",))
    names = {name for gradients in found.gradients for name, g in gradients.items() if not torch.isfinite(g).all()}
    return replace(found, gaps=(f"gradients of {len(names)} weights: they are not finite",))


def _last_calls(model: torch.nn.Module, inputs: Mapping[str, Any]) -> list[str]:
    """The paths of the modules whose forwards ended last, the latest first; none if the model cannot be recorded."""
    try:
        calls = record(model, inputs).modules
    except TraceError:
        return []
    return list(dict.fromkeys(call.path for call in reversed(calls) if call.path))[:_TRIES]


def _finite(found: Reference) -> bool:
    return all(bool(torch.isfinite(g).all()) for gradients in found.gradients for g in gradients.values())


def check_on_rank(
    model: torch.nn.Module,
    plan: Plan | Resolution,
    inputs: Mapping[str, Any],
    group: Group,
    whole: Reference,
    evidence: Evidence = UNKNOWN,
    apart: bool = True,
    also: Callable[[Applied], object] = lambda applied: None,
) -> Verdict:
    """Shard ``model`` in place for one rank, run it, and compare with the whole model's numbers.

    Args:
        evidence: of the whole model's runs; the verdict adds the ranks and the gaps.
        apart: whether this rank has its own state of the model's classes and files, which is restored after each run.
        also: called with the sharded model before its runs.
    """
    counted = Counted(group)
    try:
        applied = apply(model, plan, counted)
        also(applied)
        together = len(whole.gradients) == 1
        with same_attributes(model, apart):  # decoding must not see state of this run, as in the whole model
            found = run_model(model, inputs, bool(whole.gradients), counted, whole.start, together, whole.scales)
        if whole.tokens:
            with same_attributes(model, apart):
                found.tokens = decoded(model, inputs)
    except PlanError as error:
        return refused(group.size, str(error).partition(":")[0], str(error))
    except Exception as error:  # a wrong plan can cause any error in a model's own code
        return refused(group.size, failed_in(error, model), f"{type(error).__name__}: {str(error)[:200]}")
    finally:
        forget_entered(counted)  # otherwise its graph, which refers to the group, stays in memory with the model
    pieces = applied.resolution.pieces

    def share(name: str, gradient: torch.Tensor) -> torch.Tensor:
        return local_part(gradient, pieces[name], group) if name in pieces else gradient

    sharded = [name for name, piece in pieces.items() if piece.dim >= 0]
    proven = _proven(applied.model, whole.proven)
    unproven = tuple(name for name in sharded if name not in proven)
    verdict = judge(found, whole, group.size, share)
    scope = replace(evidence, ranks=(group.size,), forms=(WITH_GRADIENTS,), unproven=unproven)
    return replace(verdict, evidence=scope.with_gap(*verdict.evidence.gaps))


def failed_in(error: BaseException, model: torch.nn.Module) -> str:
    """The path of the innermost module whose forward raised an error, from the frames of the traceback."""
    paths = {id(module): path for path, module in model.named_modules()}
    frame, found = error.__traceback__, ""
    while frame is not None:
        owner = frame.tb_frame.f_locals.get("self")
        if isinstance(owner, torch.nn.Module):
            found = paths.get(id(owner)) or found or type(owner).__name__
        frame = frame.tb_next
    return found


def _proven(model: torch.nn.Module, known: Collection[str]) -> set[str]:
    """All names of the parameters that have a significant gradient under one of their names."""
    named = list(model.named_parameters(remove_duplicate=False))
    found = {id(parameter) for name, parameter in named if name in known}
    return {name for name, parameter in named if id(parameter) in found}
