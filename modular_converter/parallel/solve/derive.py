"""Derive a plan from a trace. No layer's name decides anything. And read the library's plan for the same trace.

1. ``follow`` the axes, 2. ``choose`` candidates, 3. find ``gradient_entries``; axes with gradients that no rule can sum
are banned, and 2 runs again, 4. add vocabularies and gathered layers, 5. write rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from modular_converter.parallel.errors import PlanFormatError
from modular_converter.parallel.plans.plan import Plan
from modular_converter.parallel.plans.text_checks import matches, wildcard
from modular_converter.parallel.solve.choose import DIVISOR, Choice, choose, layout
from modular_converter.parallel.solve.flow import Flow, uses
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.solve.operators import traits_of
from modular_converter.parallel.solve.write_rules import (
    Entries,
    ShardedParameter,
    generic_attributes,
    gradient_entries,
    has_head,
    parts_of,
    rules_of,
    shards_of_untraced,
)
from modular_converter.parallel.styles import STYLES
from modular_converter.parallel.styles.layout import (
    COLWISE,
    GATHERED,
    ROWWISE,
    SHARE,
    VOCABULARY,
    Enters,
    WeightLayout,
)
from modular_converter.parallel.trace.graph import INPUT, Op, Parameter, Trace


# A layer that needs a gather is sharded if its weight is at least this fraction of the largest layer weight.
GATHER_SHARE = 0.2
_LINEAR_CALLS = {"linear", "addmm"}
# The operator that makes the target tensor for shifted ids.
_SHIFTED = "new_zeros"
SAVED = "left whole to save communication"


@dataclass(frozen=True)
class Aim:
    """The kinds of shards that a plan may have.

    Attributes:
        gather: layers whose output must be gathered.
        pairs: column/row pairs; otherwise only gathered layers and embeddings.
        without: leaves that stay whole.
        apart: names of parameters that are neither sharded by vocabulary nor gathered.
    """

    gather: bool = True
    pairs: bool = True
    without: frozenset[int] = frozenset()
    apart: frozenset[str] = frozenset()


def plan_of(flow: Flow, aim: Aim) -> Plan:
    """The plan of a followed trace, within an aim; it is deterministic."""
    trace = flow.trace
    choice, found = _consistent(flow, aim.without) if aim.pairs else (Choice(set(), set(), []), Entries())
    shards = _shards(flow, choice)
    paired = set(shards)
    _add_vocabulary(flow, shards)
    if aim.gather:
        _add_gathers(flow, shards)
    saved = {name for name in shards if name not in paired and name in aim.apart}
    shards = {name: shard for name, shard in shards.items() if name not in saved}
    rules = rules_of(flow, shards, found)
    attributes = generic_attributes(trace, choice.attributes)
    whole = _whole(flow, choice, shards, saved)
    return Plan(trace.model, tuple(rules), tuple(attributes), tuple(whole))


def _consistent(flow: Flow, without: frozenset[int] = frozenset()) -> tuple[Choice, Entries]:
    """Choose axes; ban those with gradients that no rule can sum, or in a form that only the small instance has; repeat."""
    banned = dict.fromkeys(without, SAVED)
    while True:
        choice = choose(flow, banned)
        inexpressible = _undescribable(flow, choice)
        if inexpressible:
            banned |= dict.fromkeys(inexpressible, "the model's code does not give the length of its blocks")
            continue
        found = gradient_entries(flow, choice.chosen)
        if not found.lost:
            return choice, found
        lost = {leaf for number in found.lost for leaf in _entered(flow, number, choice)}
        hit = lost or set(choice.accepted[-1].leaves)
        for leaf in hit:
            banned[leaf] = "a whole tensor enters it, and no module border lies where its gradient could be summed"


def _undescribable(flow: Flow, choice: Choice) -> set[int]:
    """The chosen leaves of axes whose blocks cannot be described for other sizes of the model."""
    found: set[int] = set()
    for parameter in flow.trace.parameters:
        for seq in flow.of(parameter.tensor):
            lengths = [length for length, split in layout(flow, seq, choice.chosen) if split]
            if parts_of(flow, seq, lengths, parameter.name.rpartition(".")[0]) is None:
                found |= {atom.number for atom in flow.axes.leaves(seq)} & choice.chosen
    return found


def _entered(flow: Flow, number: int, choice: Choice) -> set[int]:
    """The chosen leaves of the first region that a whole tensor enters."""
    reached = {number}
    leaves: set[int] = set()
    for op in flow.trace.ops:
        if not any(source in reached for source in op.inputs()):
            continue
        for out in op.outputs:
            touched = {atom.number for seq in flow.of(out) for atom in flow.axes.leaves(seq)} & choice.chosen
            leaves |= touched
            if not touched:
                reached.add(out)
        if leaves:
            break
    return leaves


def _shards(flow: Flow, choice: Choice) -> dict[str, ShardedParameter]:
    """Parameter name -> its split by the chosen axes."""
    contracted = {
        (c.op, number): any(atom.number in choice.chosen for atom in flow.axes.leaves(c.seq))
        for c in flow.contractions
        for number in c.parameters
    }
    result: dict[str, ShardedParameter] = {}
    for parameter in flow.trace.parameters:
        for dim, seq in enumerate(flow.of(parameter.tensor)):
            blocks = layout(flow, seq, choice.chosen)
            found = uses(flow, parameter)
            if not found or not all(split for _, split in blocks):
                continue
            used = {_layout(flow, index, parameter, contracted, choice) for index, _ in found}
            own = next((one for one in (ROWWISE, COLWISE) if one in used), SHARE)
            parts = parts_of(flow, seq, [length for length, _ in blocks], parameter.name.rpartition(".")[0])
            assert parts is not None
            result[parameter.name] = ShardedParameter(own, dim, parts)
    return result | shards_of_untraced(flow, result)


def _layout(
    flow: Flow, index: int, parameter: Parameter, contracted: dict[tuple[int, int], bool], choice: Choice
) -> WeightLayout:
    """The layout of one use. A product whose other operand is sharded is local: depthwise convolutions, matrices by head."""
    row = contracted.get((index, parameter.tensor))
    if row is None:
        return SHARE
    sides = next(c.operands for c in flow.contractions if c.op == index)
    others = [n for n in sides if flow.origin.get(n) != parameter.tensor]
    leaves = {atom.number for n in others for seq in flow.of(n) for atom in flow.axes.leaves(seq)}
    if row:
        return ROWWISE
    return SHARE if leaves & choice.chosen else COLWISE


def _add_vocabulary(flow: Flow, shards: dict[str, ShardedParameter]) -> None:
    """Shard embeddings of input ids by vocabulary; a tied head gathers its logits."""
    for parameter in flow.trace.parameters:
        found = [op for _, op in uses(flow, parameter)]
        rows = [op for op in found if op.name == "embedding" and op.inputs()[0] == parameter.tensor]
        if parameter.name in shards or not rows or parameter.shape[0] % DIVISOR:
            continue
        others = [op for op in found if op not in rows]
        if others and not has_head(flow.trace, parameter):
            continue
        if all(_from_input(flow, op.inputs()[1]) for op in rows) and all(_is_linear(flow, op) for op in others):
            shards[parameter.name] = ShardedParameter(VOCABULARY, 0, (), tied_head=bool(others))


def _from_input(flow: Flow, number: int) -> bool:
    """Whether ids are an input of the model, or a view or shift of an input, and not computed positions."""
    seen = {number}
    for op in reversed(flow.trace.ops):
        if any(out in seen for out in op.outputs) and (traits_of(op).moves or op.name == _SHIFTED):
            seen |= set(op.inputs())
    return any(flow.trace.tensors[n].kind == INPUT for n in seen)


def _is_linear(flow: Flow, op: Op) -> bool:
    return op.call >= 0 and flow.trace.calls[op.call].function in _LINEAR_CALLS and op.name in ("mm", "addmm")


def _add_gathers(flow: Flow, shards: dict[str, ShardedParameter]) -> None:
    """Shard large linear layers that are still whole, with a gather of their outputs."""
    layered = [p for p in flow.trace.parameters if "*" in wildcard(p.name) and len(p.shape) > 1]
    largest = max((p.size for p in layered if len(p.shape) == 2), default=0)
    for parameter in flow.trace.parameters:
        if parameter.name in shards or len(parameter.shape) != 2:
            continue
        heavy = parameter in layered and parameter.size >= GATHER_SHARE * largest
        head = parameter not in layered and parameter.size >= largest
        found = uses(flow, parameter)
        dim = _output_dim(flow, parameter, found)
        if dim is not None and (heavy or head) and parameter.shape[dim] % DIVISOR == 0:
            shards[parameter.name] = ShardedParameter(GATHERED, dim, ())


def _output_dim(flow: Flow, parameter: Parameter, found: list[tuple[int, Op]]) -> int | None:
    """The output dimension of a weight that only its own module's linear call uses; else None."""
    owner = parameter.name.rpartition(".")[0]
    dims = set()
    for _, op in found:
        if not _is_linear(flow, op) or op.module != owner:
            return None
        weight = op.inputs()[-1]
        if flow.origin.get(weight) != parameter.tensor:
            return None
        dims.add(1 if weight == parameter.tensor else 0)
    return dims.pop() if len(dims) == 1 else None


def _whole(flow: Flow, choice: Choice, shards: dict[str, ShardedParameter], saved: set[str]) -> list[tuple[str, str]]:
    """(Parameter pattern, first reason against its axes) of each parameter that stays whole."""
    reasons: dict[int, str] = {}
    for candidate, reason in choice.refused:
        for place in candidate.places:
            reasons.setdefault(place.parameter, reason)
            if reason == SAVED:
                reasons[place.parameter] = reason
    result: dict[str, str] = {}
    used = {number for op in flow.trace.ops for number in op.inputs()}
    for number, parameter in enumerate(flow.trace.parameters):
        if parameter.name not in shards:
            text = SAVED if parameter.name in saved else reasons.get(number, "no axis of it can be sharded")
            text = text if parameter.tensor in used else "not used by the traced forward"
            result.setdefault(wildcard(parameter.name), text)
    return sorted(result.items())


# Styles without an effect here: a disabled rule, and the owner of parameters with rules of their own.
_SILENT = {"replicate", "local_params"}


def from_library(model: str, rules: Mapping[str, str], trace: Trace | None = None) -> Plan:
    """A plan from a ``base_model_tp_plan``, where packed styles have two equal parts.

    Args:
        model: the name of the model, for the plan.
        rules: layer pattern -> style.
        trace: of the model, for styles that cut the output of a module.

    Raises ``PlanFormatError`` for an unknown style, and for a style that needs the trace if there is none.
    """
    flow = follow(trace) if trace is not None and any(map(_cuts_output, rules.values())) else None
    lines = [f"plan {model}"]
    for pattern, style in rules.items():
        parts = " parts=1:1" if style in STYLES and STYLES[style].packed else ""
        if _cuts_output(style):
            parts = f" parts={_cut_of_output(flow, pattern)}"
        if style not in _SILENT:
            lines.append(f"rule {pattern} {style}{parts}")
    return Plan.parse("\n".join(lines))


def _cuts_output(style: str) -> bool:
    return style in STYLES and STYLES[style].layout.enters is Enters.TAIL


def _cut_of_output(flow: Flow | None, pattern: str) -> str:
    """The parts into which later code cuts a module's output. Raises ``PlanFormatError`` if they are unknown."""
    calls = () if flow is None else flow.trace.modules
    outputs = [number for call in calls if matches(pattern, [call.path]) for number in call.outputs]
    for number in outputs:
        assert flow is not None
        cuts = [op for op in flow.trace.ops if op.name.startswith("split") and number in op.inputs()]
        for op in cuts:
            lengths = [flow.shape(out)[-1] for out in op.outputs]
            parts = parts_of(flow, flow.of(number)[-1], lengths, op.module)
            if parts:
                return ":".join(map(str, parts))
    raise PlanFormatError(f"{pattern}: the cut of its output is unknown; it needs a trace of the model")
