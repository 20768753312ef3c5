"""Derive a pipeline plan from a trace, and prove it: the model runs stage by stage, and gives the numbers of the whole model.

A plan names the modules that run in sequence, and the tensors between them. A stage hands over tensors whose values depend
on parameters. A tensor that depends only on the model's inputs (a mask) is named by these inputs, and each stage computes
it; positions depend on no data and are not named.

In the proof, only the tensors that the plan names are handed over. Inputs of the model that a stage does not name are zeros there, and
parts of other stages return NaN. So a tensor that the plan lacks shows in the numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from modular_converter.parallel.errors import ApplyError
from modular_converter.parallel.pipeline.chain import Chain, ModuleGroup, balanced, chains_of, fed, spans
from modular_converter.parallel.pipeline.flow import flow_of, layer_paths, layers_entry
from modular_converter.parallel.pipeline.stage import StageModule
from modular_converter.parallel.plans.plan import Entry, PipelinePlan
from modular_converter.parallel.plans.resolve import names_of_tied
from modular_converter.parallel.proof.compare import Subject, reference, run_model
from modular_converter.parallel.proof.judge import (
    PADDING,
    WITH_GRADIENTS,
    Evidence,
    Reference,
    Verdict,
    judge,
    refused,
)
from modular_converter.parallel.proof.prove import small_copy
from modular_converter.parallel.proof.subject import scope_of, with_mask
from modular_converter.parallel.tiny.build import copy_of, seed_cpu
from modular_converter.parallel.trace.graph import ModuleCall, Trace
from modular_converter.parallel.trace.record import record
from modular_converter.parallel.trace.unchanged import shared_state, unchanged


def pipeline_of_trace(trace: Trace) -> PipelinePlan | str:
    """The pipeline plan of a traced model, or why it has none.

    The trace should have an ``attention_mask`` if the model takes one: the plan names only inputs in the trace.
    """
    found = derive_pipelines(trace)
    return found if isinstance(found, str) else found[0]


def derive_pipelines(trace: Trace, skips: bool = False) -> list[PipelinePlan] | str:
    """The plans of a traced model, one for each stack of layers that may be divided, or why it has none.

    Args:
        skips: whether the plans are for ``Pipeline``, which also hands on tensors that bypass layers without a name in the
            plan, and has modules without a name on each stage; a plan for transformers must name all.
    """
    chains = chains_of(trace, skips)
    if isinstance(chains, str):
        return chains
    found, reasons = [], []
    for chain in chains:
        layers = chain.groups[chain.layers]
        reason = _repeated(chain) or ("" if skips else _passing(chain, layers) or _crossing(chain, layers))
        if reason:
            reasons.append(reason)
        else:
            found.append(PipelinePlan(trace.model, tuple(_entries(chain))))
    return found or reasons[0]


def _repeated(chain: Chain) -> str:
    """The reason if the layers do not run once each, in order; else ""."""
    paths = [call.path for call in chain.groups[chain.layers].calls]
    twice = next((path for path in paths if paths.count(path) > 1), None)
    if twice:
        return f"`{twice}` runs more than once, so that its weights would be on several stages"
    numbers = [int(path.rpartition(".")[2]) for path in paths]
    if numbers != sorted(numbers):
        return f"the members of `{chain.groups[chain.layers].key}` do not run in their order"
    keys = [group.key for group in chain.groups]
    if keys.count(chain.groups[chain.layers].key) > 1:
        return f"the members of `{chain.groups[chain.layers].key}` alternate with other modules"
    return ""


def _activations(chain: Chain, call: ModuleCall) -> list[tuple[str, tuple[int, ...]]]:
    found = ((name, tuple(n for n in numbers if chain.active(n))) for name, numbers in call.arguments)
    return [(name, numbers) for name, numbers in found if numbers]


def _chained(chain: Chain, layers: ModuleGroup) -> list[str]:
    """The names of arguments that take results of the layer before, masks included."""
    names: dict[str, None] = {}
    for before, after in zip(layers.calls, layers.calls[1:]):
        earlier = {number for op in chain.trace.ops[: before.first] for number in op.outputs}
        entering = fed(chain.trace, before, after)
        made = {number for number in entering if chain.active(number) or number not in earlier}
        names.update(dict.fromkeys(name for name, numbers in after.arguments if made & set(numbers)))
    return list(names)


def _passing(chain: Chain, layers: ModuleGroup) -> str:
    """The reason if layers take different tensors in one argument that the layer before does not compute; else ""."""
    for name in _differing(chain, layers):
        return f"each of `{layers.key}` takes a `{name}` of its own, which the layer before it does not compute"
    return ""


def _differing(chain: Chain, layers: ModuleGroup) -> list[str]:
    """The names of arguments that take different tensors in the layers, though not results of the layer before."""
    chained = _chained(chain, layers)
    seen: dict[str, tuple[int, ...]] = {}
    found: dict[str, None] = {}
    for call in layers.calls:
        for name, numbers in _activations(chain, call):
            if name not in chained and seen.setdefault(name, numbers) != numbers:
                found[name] = None
    return list(found)


def _crossing(chain: Chain, layers: ModuleGroup) -> str:
    """The first tensor that passes a border between two layers without entering the second, in words; "" if none does.

    Outputs of the model may: stages hand them on if they are results of modules, and otherwise the proof fails.
    """
    trace = chain.trace
    made: dict[int, int] = {}
    used: dict[int, int] = {}
    for index, op in enumerate(trace.ops):
        used.update(dict.fromkeys(op.inputs(), index))
        for number in op.outputs:
            made.setdefault(number, index)
    for call in layers.calls[1:]:
        for number in sorted(made):
            crosses = made[number] < call.first <= used.get(number, -1)
            if crosses and chain.active(number) and number not in call.inputs:
                maker = trace.ops[made[number]].module or "the model"
                user = trace.ops[used[number]].module or "the model"
                return f"a tensor that `{maker}` makes before `{call.path}` is used by `{user}`, without passing the layers between"
    return ""


def _entries(chain: Chain) -> list[Entry]:
    layers = chain.groups[chain.layers]
    whole = next(call for call in reversed(chain.trace.modules) if not call.path)
    shared = {*whole.parameters, *(name for call in layers.calls for name, _ in call.arguments)}
    found: dict[str, Entry] = {}
    known = ""  # the name of the last output
    for index, group in enumerate(chain.groups):
        if index == chain.layers:
            outputs = _chained(chain, group)
            differing = _differing(chain, group)
            named = (name for name in _inputs(chain, group, whole, lambda name, _: name) if name not in differing)
            inputs = _joined(named, outputs)
        else:
            inputs = _inputs(chain, group, whole, lambda name, own: _shared_name(name, own, shared, known))  # noqa: B023
            later = [call for after in chain.groups[index + 1 :] for call in after.calls]
            outputs = [_output(group.calls[-1], later, shared, known)]
        entry = Entry(group.key, inputs, tuple(outputs))
        old = found.get(group.key, entry)
        found[group.key] = Entry(group.key, _joined(old.inputs, entry.inputs), _joined(old.outputs, entry.outputs))
        known = entry.outputs[0]
    return list(found.values())


def _joined(left: Iterable[str], right: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*left, *right)))


def _inputs(
    chain: Chain, group: ModuleGroup, whole: ModuleCall, say: Callable[[str, tuple[str, ...]], str]
) -> tuple[str, ...]:
    """The names of the tensors that a group takes.

    Args:
        say: the name of an argument and the caller's variables -> the name of an activation.
    """
    names: dict[str, None] = {}
    for call in group.calls:
        local = dict(call.local_names)
        for name, numbers in call.arguments:
            for number in numbers:
                if chain.active(number):
                    names[say(name, local.get(number, ()))] = None
                else:
                    given = chain.depends[number]
                    names.update(dict.fromkeys(n for n in whole.parameters if n in given))
    return tuple(names)


def _shared_name(name: str, local: tuple[str, ...], shared: set[str], known: str) -> str:
    """A name that the model or its layers use: the caller's variable, the argument, or the name of the last output."""
    own = [variable for variable in local if variable in shared]
    return own[0] if own else name if name in shared else known or name


def _output(call: ModuleCall, later: list[ModuleCall], shared: set[str], known: str) -> str:
    """The variable of the result, if the model or layers use its name; else the name of an argument that takes it."""
    names = [call.result]
    names += [name for c in later for name, numbers in c.arguments if set(numbers) & set(call.outputs)]
    return next((name for name in (*names, known) if name in shared), call.result or "output")


class _Fed(torch.nn.Module):
    """A stage that has received its tensors."""

    def __init__(self, stage: StageModule, received: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.stage, self.received = stage, received

    def forward(self, **inputs: Any) -> Any:
        return self.stage(*self.received, **inputs)


_PREFIX = "stage.model."


def run_in_stages(
    model: torch.nn.Module,
    plan: PipelinePlan,
    inputs: Mapping[str, Any],
    cuts: tuple[int, ...],
    gradients: bool = True,
    whole_batch: bool = False,
) -> Reference:
    """Outputs of the last stage, and gradients by parameter name summed over the stages.

    Args:
        model: whole, on the CPU; it is copied, not changed.
        cuts: the first layer of each stage after the first.
        whole_batch: whether stages get all inputs of the model, or only those that the plan names for them.

    Raises ``ApplyError`` if the plan does not fit the model, or names a value that no layer takes.
    """
    with unchanged(model), torch.no_grad():
        flow = flow_of(model, plan, inputs, asks=True, skips=whole_batch)
    stages = [StageModule(copy_of(model), plan, span) for span in spans(cuts, len(layer_paths(model, plan)))]
    before = shared_state(model)  # a stage does not see another stage's state of classes and files
    received: tuple[torch.Tensor, ...] = ()
    borders = []
    for stage in stages:
        stage.prepare(flow)
        if not stage.is_last:
            seed_cpu(11)
            sent = stage(*received, **_named(stage, inputs, whole_batch))
            before.give_back()
            received = tuple(tensor.detach().requires_grad_(tensor.requires_grad) for tensor in sent)
            borders.append((sent, received))
    found = run_model(_Fed(stages[-1], received), _named(stages[-1], inputs, whole_batch), gradients, together=True)
    before.give_back()
    names = names_of_tied(model)
    total = {
        names[name.removeprefix(_PREFIX)]: gradient for last in found.gradients for name, gradient in last.items()
    }
    if not gradients:
        return Reference(found.outputs, [])
    for stage, (sent, received) in zip(reversed(stages[:-1]), reversed(borders)):
        _backward(sent, received)
        for alias, parameter in stage.model.named_parameters():
            if parameter.grad is not None:
                name = names[alias]
                total[name] = total[name] + parameter.grad if name in total else parameter.grad
    return Reference(found.outputs, [total])


def _named(stage: StageModule, inputs: Mapping[str, Any], whole_batch: bool) -> dict[str, Any]:
    """The inputs, with zeros in place of the tensors that no part of the stage names."""
    needs = inputs if whole_batch else stage.needs
    return {
        name: torch.zeros_like(value) if isinstance(value, torch.Tensor) and name not in needs else value
        for name, value in inputs.items()
    }


def _backward(sent: Sequence[torch.Tensor], received: Sequence[torch.Tensor]) -> None:
    """Continue the backward from the sent tensors, with the gradients of the received tensors."""
    wanted = [(one, got.grad) for one, got in zip(sent, received) if one.requires_grad and got.grad is not None]
    if wanted:
        torch.autograd.backward([one for one, _ in wanted], [gradient for _, gradient in wanted])


def cuts_of(model: torch.nn.Module, plan: PipelinePlan, stages: int) -> tuple[int, ...]:
    """The cuts between layers for which the stages hold about the same bytes of parameters.

    Raises ``ApplyError`` as ``layers_entry`` does, and for fewer layers than stages.
    """
    layers = layers_entry(model, plan)
    at = plan.entries.index(layers)
    head = sum(_bytes(model.get_submodule(entry.module)) for entry in plan.entries[:at])
    tail = sum(_bytes(model.get_submodule(entry.module)) for entry in plan.entries[at + 1 :])
    costs = [_bytes(layer) for layer in model.get_submodule(layers.module).children()]
    try:
        return balanced(costs, stages, head, tail)
    except ValueError as error:
        raise ApplyError(f"{layers.module}: {error}") from error


def _bytes(module: torch.nn.Module) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in module.parameters())


def verify_pipeline(
    model: torch.nn.Module, plan: PipelinePlan, inputs: Mapping[str, Any], stages: int = 2, whole_batch: bool = False
) -> Verdict:
    """Compare outputs and parameter gradients of the model in stages with the whole model's.

    The layers are cut into ``stages`` of about the same bytes, and then in two between each two layers.

    Args:
        whole_batch: whether stages get all inputs of the model, as in ``Pipeline``, or those that the plan names.

    Returns:
        The first failing verdict, which names the cut, or the worst passing one.
    """
    whole = reference(model, inputs, together=True)
    try:
        layers = layers_entry(model, plan)
        count = len(list(model.get_submodule(layers.module).children()))
        cuts = dict.fromkeys([cuts_of(model, plan, stages), *((k,) for k in range(1, count))])
    except ApplyError as error:
        return refused(stages, str(error).partition(":")[0], str(error))
    verdicts = []
    for cut in cuts:
        verdict = _verdict(model, plan, inputs, cut, whole, whole_batch)
        if not verdict.passed:
            return verdict
        verdicts.append(verdict)
    worst = max(verdicts, key=lambda v: (v.output_error, v.gradient_error))
    return replace(worst, evidence=_scope(model, inputs, whole, worst.evidence))


def _scope(model: torch.nn.Module, inputs: Mapping[str, Any], whole: Reference, found: Evidence) -> Evidence:
    """The evidence of one forward and its gradients."""
    padded = (PADDING,) if "attention_mask" in inputs else ()
    scope = scope_of(Subject(model, inputs, whole), padded, model)
    forms = (WITH_GRADIENTS,) if whole.gradients else ()
    return replace(scope, ranks=found.ranks, forms=forms).with_gap(*found.gaps, "other weights", "optional arguments")


def _verdict(
    model: torch.nn.Module,
    plan: PipelinePlan,
    inputs: Mapping[str, Any],
    cut: tuple[int, ...],
    whole: Reference,
    whole_batch: bool,
) -> Verdict:
    stages = len(cut) + 1
    where = "cut before layer " + " and ".join(map(str, cut))
    try:
        found = run_in_stages(model, plan, inputs, cut, bool(whole.gradients), whole_batch)
    except ApplyError as error:
        return refused(stages, str(error).partition(":")[0], f"{where}: {error}")
    except Exception as error:  # a missing tensor can cause any error in the model's own code
        return refused(stages, "a stage", f"{where}: {type(error).__name__}: {str(error)[:200]}")
    verdict = judge(found, whole, stages)
    if verdict.passed:
        return verdict
    blank = math.isinf(verdict.output_error) and len(found.outputs) == len(whole.outputs)
    reason = "the outputs use a value that the stages do not hand over" if blank else verdict.reason
    return replace(verdict, reason=f"{where}: {reason}")


def derive_pipeline(module: torch.nn.Module, inputs: Mapping[str, Any] | Sequence[Any]) -> PipelinePlan:
    """The pipeline plan of any module with a list of layers, for ``Pipeline(module, plan=…)``.

    It is proven on a copy with random weights, cut between each two layers; the module itself is unchanged. The list is a
    ``ModuleList`` or a ``Sequential``, also the module itself, whose members run in order, each on results of the one before
    (other values may pass beside them, layers may return tuples).

    Args:
        module: a small instance on the CPU; its plan holds for larger instances of the same classes.
        inputs: arguments of one forward, by name or in order.

    Raises ``PlanError`` if the module is too large or not on the CPU, its forward fails, it is no chain of layers (with the
    reason), or stages give other numbers.
    """
    with torch.random.fork_rng(devices=[]):
        small = small_copy(module, inputs)
        return proven_pipeline_plan(small.model, small.inputs, small.name)


def proven_pipeline_plan(model: Any, inputs: Mapping[str, Any], name: str) -> PipelinePlan:
    """The first derived plan of a small model whose proof holds; there is a plan for each stack of layers.

    Raises ``ApplyError`` if the model is no chain of layers, or stages give other numbers.
    """
    inputs = with_mask(model, inputs)
    plans = derive_pipelines(record(model, inputs, name), skips=True)
    if isinstance(plans, str):
        raise ApplyError(f"{name} cannot be cut into stages: {plans}")
    reasons = []
    for plan in plans:
        verdict = verify_pipeline(model, plan, inputs, whole_batch=True)
        if verdict.passed:
            return plan
        reasons.append(verdict.reason)
    with unchanged(model), torch.no_grad():
        writes = bool(flow_of(model, plans[0], inputs, asks=True, skips=True).rewritten)
    cure = (
        "; its layers write to what they get, as x.add_(…) does: let them make new tensors, as x + … does"
        if writes
        else ""
    )
    raise ApplyError(f"{name} in stages gives other numbers than whole: {reasons[0]}{cure}")
