"""What a plan costs and saves: bytes of a rank and collectives of a forward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from modular_converter.parallel.plans.patterns import matches
from modular_converter.parallel.plans.plan import STYLES, Plan, Rule
from modular_converter.parallel.solve.flow import Flow, uses
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.trace.graph import Parameter, Trace


if TYPE_CHECKING:
    from modular_converter.parallel.plans.resolve import Piece


_SPLITS = set(STYLES) - {"replicated_with_grad_allreduce", "moe_tp_experts", "enter_output", "enter_input"}
# Collectives of one forward that a matched module or parameter brings, by style.
COLLECTIVES = {
    "rowwise": "all-reduce",
    "packed_rowwise": "all-reduce",
    "rowwise_split_input": "all-reduce",
    "embedding_rowwise": "all-reduce",
    "colwise_gather_output": "all-gather",
    "moe_tp_experts": "all-reduce",
    "ep_dispatch_experts": "all-reduce",
}


@dataclass(frozen=True)
class Cost:
    """Bytes (float32) of all parameters and of one rank's, bytes of layer weights, and collectives of one forward."""

    whole: int
    rank: int
    layer_whole: int
    layer_sharded: int
    collectives: int

    @property
    def share(self) -> float:
        """The part of the bytes of attention's and feed-forward's matrices that is sharded, 0 to 1."""
        return self.layer_sharded / self.layer_whole if self.layer_whole else 0.0

    @property
    def sharded(self) -> float:
        """The part of all bytes that is sharded, on two ranks, 0 to 1."""
        return 2 * (self.whole - self.rank) / self.whole if self.whole else 0.0


def cost(trace: Trace, plan: Plan, pieces: dict[str, Piece], ranks: int) -> Cost:
    """The cost of a plan on a traced model. Parameters that the forward does not use do not count as layer weights."""
    used = {number for op in trace.ops for number in op.inputs()}
    whole = rank = layers = sharded = 0
    for parameter in trace.parameters:
        size = 4 * parameter.size
        piece = next((pieces[name] for name in parameter.names if name in pieces), None)
        split = piece is not None and piece.dim >= 0
        whole += size
        rank += size // ranks if split else size
        if _is_layer_weight(parameter, used):
            layers += size
            sharded += size if split else 0
    return Cost(whole, rank, layers, sharded, calls(follow(trace), plan))


def _is_layer_weight(parameter: Parameter, used: set[int]) -> bool:
    """A matrix of attention or feed-forward: in a numbered layer, used, and no kernel over positions."""
    in_a_layer = any(word.isdigit() for word in parameter.name.split("."))
    over_positions = "conv" in parameter.owner_class.lower() and any(length > 1 for length in parameter.shape[2:])
    return len(parameter.shape) > 1 and in_a_layer and parameter.tensor in used and not over_positions


def covered(trace: Trace, plan: Plan) -> set[str]:
    """First names of the parameters that a rule of the plan splits."""
    found = set()
    for rule in plan.rules:
        if rule.style in _SPLITS:
            found |= {p.name for p in trace.parameters if _matched(rule, p)}
    return found


def calls(flow: Flow, plan: Plan) -> int:
    """Collectives of one forward: one for each use of a weight whose style communicates, one a call of experts."""
    experts = [rule.pattern for rule in plan.rules if rule.style == "moe_tp_experts"]
    return sum(_calls(flow, rule, experts) for rule in plan.rules)


def _calls(flow: Flow, rule: Rule, experts: list[str]) -> int:
    if rule.style not in COLLECTIVES:
        return 0
    if rule.style == "moe_tp_experts":
        return sum(bool(matches(rule.pattern, [call.path])) for call in flow.trace.modules)
    owned = [p for p in flow.trace.parameters if _matched(rule, p) and not _is_bias(rule, p)]
    owned = [p for p in owned if not any(matches(pattern, [p.name.rpartition(".")[0]]) for pattern in experts)]
    return sum(len(uses(flow, parameter)) for parameter in owned)


def _matched(rule: Rule, parameter: Parameter) -> bool:
    return any(
        matches(pattern, parameter.names)
        for pattern in (rule.pattern, f"{rule.pattern}.weight", *([f"{rule.pattern}.bias"] * ("col" in rule.style)))
    )


def _is_bias(rule: Rule, parameter: Parameter) -> bool:
    return not matches(rule.pattern, parameter.names) and not matches(f"{rule.pattern}.weight", parameter.names)


def static_findings(trace: Trace, plan: Plan, pieces: dict[str, Piece], ranks: int) -> list[str]:
    """What is wrong without running: blocks that do not divide, large weights neither covered nor said to be whole."""
    said = [pattern for pattern, _ in plan.whole]
    found = []
    largest = max((p.size for p in trace.parameters), default=0)
    for parameter in trace.parameters:
        piece = pieces.get(parameter.name)
        if piece is None:
            quiet = any(matches(pattern, parameter.names) for pattern in said)
            if not quiet and 4 * parameter.size >= largest:
                found.append(f"{parameter.name}: large, without a rule, and not said to be whole")
        elif piece.dim >= 0:
            blocks = sum(piece.parts) or 1
            length = parameter.shape[piece.dim]
            if length % (blocks * ranks):
                found.append(f"{parameter.name}: {length} in {blocks} parts does not divide over {ranks} ranks")
    return found
