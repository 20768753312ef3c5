"""Derive an expert-parallel plan from a trace: find the stacked weights with an axis of experts.

An axis of experts is looked up, or grouped, by indices that the model computes from activations, unlike a vocabulary. All
weights of a module with this axis are divided together with the module.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.plans.text_checks import wildcard
from modular_converter.parallel.solve.axes import Seq
from modular_converter.parallel.solve.choose import DIVISOR
from modular_converter.parallel.solve.flow import Flow, integer_argument
from modular_converter.parallel.solve.follow import PARAMETERS, dependence, follow
from modular_converter.parallel.styles import style_of
from modular_converter.parallel.styles.layout import ROUTED_EXPERTS, STACKED_EXPERTS, SUMMED_GRADIENT
from modular_converter.parallel.trace.graph import ModuleCall, Parameter, Trace


@dataclass
class Experts:
    """A module with stacked weights.

    Attributes:
        dims: parameter -> its dimension of experts.
        number: of experts.
    """

    path: str
    dims: dict[str, int] = field(default_factory=dict)
    number: int = 0


def derive_experts(trace: Trace) -> Plan:
    """The expert-parallel plan of a traced model; without rules if it has no stacked experts.

    Its ``whole`` has the experts that cannot be divided, with the reason.
    """
    flow = follow(trace)
    rules: dict[str, PlanRule] = {}
    attributes: dict[str, None] = {}
    whole: dict[str, str] = {}
    for experts in _modules(flow):
        reason = _reason(trace, experts)
        if reason:
            whole.setdefault(wildcard(experts.path), reason)
            continue
        for rule in _rules(trace, experts):
            rules.setdefault(rule.pattern, rule)
        attributes.update(dict.fromkeys(_attributes(trace, experts)))
    kept = [rule for rule in rules.values() if not any(f"{rule.pattern}.".startswith(f"{path}.") for path in whole)]
    return Plan(trace.model, tuple(kept), tuple(sorted(attributes)), tuple(sorted(whole.items())))


def _modules(flow: Flow) -> list[Experts]:
    """All modules with parameters that computed indices select from; at least one must be a stack of matrices."""
    depends = dependence(flow.trace)
    by_tensor = {parameter.tensor: parameter for parameter in flow.trace.parameters}
    found: dict[str, Experts] = {}
    picks = [(lookup.source, lookup.seq, lookup.indices) for lookup in flow.lookups]
    for source, seq, indices in [*picks, *_read_and_selected(flow)]:
        parameter = by_tensor.get(flow.origin.get(source, -1))
        if parameter is None or not any(PARAMETERS in depends[number] for number in indices):
            continue
        dim = _dimension(flow, parameter, seq)
        if dim is not None:
            owner = parameter.name.rpartition(".")[0]
            experts = found.setdefault(owner, Experts(owner, number=parameter.shape[dim]))
            experts.dims[parameter.name] = dim
    shapes = {parameter.name: parameter.shape for parameter in flow.trace.parameters}
    return [experts for experts in found.values() if any(len(shapes[name]) > 2 for name in experts.dims)]


def _read_and_selected(flow: Flow) -> list[tuple[int, Seq, tuple[int, ...]]]:
    """Selections ``weight[i]`` with a tensor of one integer, which the program reads in the same call."""
    read: dict[int, tuple[int, ...]] = {}
    found = []
    for op in flow.trace.ops:
        if op.name == "_local_scalar_dense" and op.call >= 0:
            read[op.call] = op.inputs()
        if op.name == "select" and op.call in read:
            source = op.inputs()[0]
            dims = flow.of(source)
            found.append((source, dims[integer_argument(op.args[1]) % len(dims)], read[op.call]))
    return found


def _dimension(flow: Flow, parameter: Parameter, seq: Seq) -> int | None:
    flat = flow.axes.flat(seq)
    own = [flow.axes.flat(axis) for axis in flow.of(parameter.tensor)]
    return own.index(flat) if flat and flat in own else None


def _reason(trace: Trace, experts: Experts) -> str:
    """The reason why these experts cannot be divided; empty if they can."""
    other = next((name for name, dim in experts.dims.items() if dim != 0), None)
    if other:
        return f"the experts are dimension {experts.dims[other]} of {other.rpartition('.')[2]}, not the first"
    numbers = {p.shape[0] for p in trace.parameters if p.name in experts.dims}
    if len(numbers) > 1:
        return f"its weights hold different numbers of experts: {', '.join(map(str, sorted(numbers)))}"
    if experts.number % DIVISOR:
        return f"{experts.number} experts do not divide by {DIVISOR}"
    call = _call(trace, experts)
    if call is None:
        return "its weights are used outside its own forward"
    return "" if _routed(trace, call) else "it takes no index of experts with weights of the same shape"


def _call(trace: Trace, experts: Experts) -> ModuleCall | None:
    """The first call of the module, if its calls contain all uses of its weights; else None."""
    tensors = {p.tensor for p in trace.parameters if p.name in experts.dims}
    uses = [index for index, op in enumerate(trace.ops) if tensors & set(op.inputs())]
    calls = [call for call in trace.modules if call.path == experts.path]
    inside = all(any(c.first <= index < c.last for c in calls) for index in uses)
    return calls[0] if calls and inside else None


def _routed(trace: Trace, call: ModuleCall) -> bool:
    tensors = [trace.tensors[number] for number in call.inputs]
    indices = [tensor for tensor in tensors if not tensor.floating]
    return len(indices) == 1 and sum(t.floating and t.shape == indices[0].shape for t in tensors) == 1


def _rules(trace: Trace, experts: Experts) -> list[PlanRule]:
    """Rules for the stacks and the module; its other weights are whole, and their gradients are summed."""
    rules = []
    used = {number for op in trace.ops for number in op.inputs()}
    for parameter in trace.parameters:
        if not parameter.name.startswith(f"{experts.path}."):
            continue
        if parameter.name in experts.dims:
            rules.append(PlanRule(wildcard(parameter.name), style_of(STACKED_EXPERTS)))
        elif parameter.tensor in used:
            owner = parameter.name.rpartition(".")[0]
            place = parameter.name if owner == experts.path else owner
            rules.append(PlanRule(wildcard(place), style_of(SUMMED_GRADIENT)))
    return [*rules, PlanRule(wildcard(experts.path), style_of(ROUTED_EXPERTS))]


def _attributes(trace: Trace, experts: Experts) -> list[str]:
    """The module's integers that count its experts, except ``num_experts``, which the style itself divides."""
    found: dict[str, None] = {}
    calls = [call for call in trace.modules if call.path == experts.path]
    for op in (op for call in calls for op in trace.ops[call.first : call.last] if op.call >= 0):
        for source in trace.calls[op.call].integers:
            for leaf in source.leaves():
                if (leaf.owner, leaf.value) == (experts.path, experts.number):
                    found[f"{wildcard(leaf.owner)}:{leaf.name}"] = None
    return [name for name in found if not name.endswith(":num_experts")]
