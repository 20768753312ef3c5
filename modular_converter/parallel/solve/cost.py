"""The cost of a plan: bytes on a rank, and collectives of a forward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from modular_converter.parallel.plans.patterns import matches
from modular_converter.parallel.plans.plan import Plan, PlanRule
from modular_converter.parallel.solve.flow import Flow, uses
from modular_converter.parallel.solve.follow import follow
from modular_converter.parallel.styles.layout import Collective, Side
from modular_converter.parallel.trace.graph import Parameter, Trace


if TYPE_CHECKING:
    from modular_converter.parallel.plans.resolve import Piece


@dataclass(frozen=True)
class Cost:
    """Bytes (float32) of all parameters, of one rank's, of all and of sharded layer weights; collectives of a forward."""

    whole: int
    rank: int
    layer_whole: int
    layer_sharded: int
    collectives: int

    @property
    def share(self) -> float:
        """The sharded fraction of the bytes of attention and feed-forward matrices, 0 to 1."""
        return self.layer_sharded / self.layer_whole if self.layer_whole else 0.0

    @property
    def sharded(self) -> float:
        """The sharded fraction of all bytes on two ranks, 0 to 1."""
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
        if rule.layout.cuts:
            found |= {p.name for p in trace.parameters if _matched(rule, p)}
    return found


def calls(flow: Flow, plan: Plan) -> int:
    """Collectives of one forward."""
    return sum(len(found) for found in collectives(flow, plan).values())


def collectives(flow: Flow, plan: Plan) -> dict[PlanRule, list[tuple[Collective, tuple[int, ...]]]]:
    """The collectives of each rule in one forward, with the whole shapes of their tensors.

    Each use of a weight is one collective, or each call of a module. Weights in a module that acts for them have none.
    """
    acting = [rule.pattern for rule in plan.rules if rule.layout.acts_for_weights]
    return {rule: list(_collectives(flow, rule, acting)) for rule in plan.rules}


def _collectives(flow: Flow, rule: PlanRule, acting: list[str]) -> Iterator[tuple[Collective, tuple[int, ...]]]:
    collective = rule.layout.leaves
    if collective is None:
        return
    if rule.layout.of_module:
        for call in flow.trace.modules:
            if matches(rule.pattern, [call.path]):
                yield collective, flow.shape(call.outputs[0]) if call.outputs else ()
        return
    for parameter in flow.trace.parameters:
        inside = any(matches(pattern, [parameter.name.rpartition(".")[0]]) for pattern in acting)
        if not inside and _matched(rule, parameter) and not _is_bias(rule, parameter):
            for _, op in uses(flow, parameter):
                yield collective, flow.shape(op.outputs[0])


def _matched(rule: PlanRule, parameter: Parameter) -> bool:
    return any(
        matches(pattern, parameter.names)
        for pattern in (
            rule.pattern,
            f"{rule.pattern}.weight",
            *([f"{rule.pattern}.bias"] * (rule.layout.cut is Side.OUTPUT)),
        )
    )


def _is_bias(rule: PlanRule, parameter: Parameter) -> bool:
    return not matches(rule.pattern, parameter.names) and not matches(f"{rule.pattern}.weight", parameter.names)


def static_findings(trace: Trace, plan: Plan, pieces: dict[str, Piece], ranks: int) -> list[str]:
    """Faults that need no run: too short blocks, and large weights without a rule or a reason to stay whole."""
    said = [pattern for pattern, _ in plan.whole]
    found = []
    largest = max((p.size for p in trace.parameters), default=0)
    for parameter in trace.parameters:
        piece = pieces.get(parameter.name)
        if piece is None:
            quiet = any(matches(pattern, parameter.names) for pattern in said)
            if not quiet and 4 * parameter.size >= largest:
                found.append(f"{parameter.name}: large, without a rule, and not listed as whole")
        elif piece.dim >= 0:
            blocks = sum(piece.parts) or 1
            length = parameter.shape[piece.dim]
            if length % blocks or length // blocks < ranks:
                found.append(f"{parameter.name}: {length} in {blocks} parts is too short for {ranks} ranks")
    return found
